"""Novel images that wait until it is clear what they are, and those of classes that have no name yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from shels.data.samples import Samples
from shels.learner.graph import as_graph_inputs
from shels.model.networks import Network, Views

if TYPE_CHECKING:
    from shels.agent.home import Home
    from shels.learner.learner import Learner

UNNAMED, WAITING = "taken-", "batch-"
"""How images of a class with a provisional name, and of a batch that looked new, are called in a home."""
MOST_WAITING = 5000


@dataclass(frozen=True, eq=False)
class Buffer:
    """Images under one name; order: when they came. features: as this network saw them, where it did."""

    inputs: Tensor
    order: int
    features: Views | None = None
    network: Network | None = None

    def tensors(self) -> dict[str, Tensor]:
        """Return it as a home stores it."""
        return {"inputs": self.inputs, "order": torch.tensor(self.order)}


class Buffers:
    """The images kept, in memory and, with a home, on disk."""

    def __init__(self, home: Home | None = None) -> None:
        self.home = home
        self._buffers = read_buffers(home) if home is not None else {}

    def of_class(self, label: object) -> Tensor | None:
        """Return the images of a class with a provisional name."""
        found = self._buffers.get(f"{UNNAMED}{label}")
        return None if found is None else found.inputs

    def examples(self, learner: Learner) -> Samples | None:
        """Return the images of all classes with provisional names as the learner sees them, if any."""
        found = {place: self.of_class(name) for place, name in enumerate(learner.classes)}
        there = {place: each for place, each in found.items() if each is not None}
        if not there:
            return None
        inputs = torch.cat([as_graph_inputs(learner.preparation, each) for each in there.values()])
        labels = torch.cat([torch.full((len(each),), place) for place, each in there.items()])
        return Samples(inputs, labels, learner.classes, origin="kept in the model's directory")

    def numbered(self, images: Mapping[str, Tensor]) -> dict[str, Buffer]:
        """Return images as buffers that come after all others."""
        last = max([0, *(each.order for name, each in self._buffers.items() if name not in images)])
        return {name: Buffer(each, order) for order, (name, each) in enumerate(images.items(), last + 1)}

    def changed(self, come: Mapping[str, Buffer], drop: Iterable[str]) -> None:
        """Follow a change of the home that brought some images and took others."""
        for name in {*come, *drop}:
            self._buffers.pop(name, None)
        self._buffers |= come  # the order of names is that of coming

    # Images that wait for a person --------------------------------------------------------------------------

    def keep(self, name: str, inputs: Tensor, features: Views, network: Network) -> None:
        """Keep images under a name of their own, on disk when this returns."""
        buffer = self.numbered({name: inputs})[name]
        if self.home is not None:
            self.home.buffer(name, buffer.tensors())
        self.changed({name: replace(buffer, features=features, network=network)}, ())

    def named(self, prefix: str) -> list[tuple[str, Buffer]]:
        """Return what is kept under names that begin so, in the order in which it came."""
        every = list(self._buffers.items())  # at once: samples come in meanwhile
        return [(name, each) for name, each in every if name.startswith(prefix)]

    def prepare(self, names: Iterable[str], learner: Learner) -> None:
        """Compute what a learner's network makes of images, all that it has not seen yet in one pass."""
        there = [(name, self._buffers[name]) for name in sorted(names)]
        fresh = [(name, each) for name, each in there if each.network is not learner.network]
        if fresh:
            views = learner.views(torch.cat([each.inputs for _, each in fresh]))
            end = 0
            for name, each in fresh:
                start, end = end, end + len(each.inputs)
                part = Views(*(view[start:end] for view in views))
                self._buffers[name] = replace(each, features=part, network=learner.network)

    def features(self, name: str, learner: Learner) -> Views:
        """Return what a learner's network makes of images; what it has seen before is not computed again."""
        self.prepare([name], learner)
        return cast("Views", self._buffers[name].features)

    def drop(self, names: Iterable[str]) -> None:
        """Let images go, on disk too."""
        self._drop(list(names))

    # Images of batches ------------------------------------------------------------------------------------

    def wait(
        self, batch: str, inputs: Tensor, features: Views | None = None, network: Network | None = None
    ) -> None:
        """Keep novel images of a batch, and let those go that came before the latest 5,000."""
        name = f"{WAITING}{batch}"
        buffer = self.numbered({name: inputs})[name]
        if self.home is not None:
            self.home.buffer(name, buffer.tensors())
        self.changed({name: replace(buffer, features=features, network=network)}, ())
        count = 0
        for earlier in reversed([name for name in self._buffers if name.startswith(WAITING)]):
            if count >= MOST_WAITING:
                self._drop([earlier])
                continue
            count += len(self._buffers[earlier].inputs)

    def waiting(self) -> Tensor:
        """Return the images of which it is not clear what they are, the latest 5,000 of one form."""
        found = [each.inputs for _, each in self._alike()]
        return torch.cat(found)[-MOST_WAITING:] if found else torch.empty(0)

    def waiting_features(self, learner: Learner) -> Views:
        """Return what a learner's network makes of them; what it has seen before is not computed again."""
        alike = self._alike()
        for name, each in alike:
            if each.network is not learner.network:
                features = learner.views(each.inputs)
                self._buffers[name] = replace(each, features=features, network=learner.network)
        found = [self._buffers[name].features for name, _ in alike]
        columns = zip(*(each for each in found if each is not None), strict=True)
        return Views(*(torch.cat(column)[-MOST_WAITING:] for column in columns))

    def seen_features(self, learner: Learner) -> Views | None:
        """Return the same where all of it is there already."""
        known = all(each.network is learner.network for _, each in self._alike())
        return self.waiting_features(learner) if known else None

    def release(self, batch: str | None = None) -> None:
        """Let the images go that wait, of one batch or of all."""
        if batch is None:
            self._drop([name for name in self._buffers if name.startswith(WAITING)])
        elif WAITING + batch in self._buffers:
            self._drop([WAITING + batch])

    def _alike(self) -> list[tuple[str, Buffer]]:
        found = [(name, each) for name, each in self._buffers.items() if name.startswith(WAITING)]
        form = _form(found[-1][1].inputs) if found else None
        return [(name, each) for name, each in found if _form(each.inputs) == form]

    def _drop(self, names: list[str]) -> None:
        if self.home is not None:
            self.home.clear(names)
        for name in names:
            del self._buffers[name]


def read_buffers(home: Home) -> dict[str, Buffer]:
    """Read the images that a home keeps, in the order in which they came."""
    found = {}
    for name, tensors in home.buffered().items():
        inputs, order = tensors.get("inputs"), tensors.get("order", torch.tensor(0))
        if inputs is None or inputs.ndim < 2:
            raise home.no_batch(name, "it has no inputs")
        if order.numel() != 1 or order.is_floating_point():
            raise home.no_batch(name, "its order is no number")
        found[name] = Buffer(inputs, int(order))
    return dict(sorted(found.items(), key=lambda item: item[1].order))


def _form(inputs: Tensor) -> tuple[torch.dtype, torch.Size]:
    return inputs.dtype, inputs.shape[1:]

"""What came in lately, in memory alone: the last samples, and of each class the last that were accepted."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from datetime import UTC, datetime
from threading import Lock

from torch import Tensor

from shels.errors import DataError
from shels.service import views

_SAMPLES, _EXAMPLES = 200, 24


class Strip:
    """The last samples with their pictures. accepted: how many of each class since the service began."""

    def __init__(self) -> None:
        self.accepted: Counter[str] = Counter()
        self._samples: deque[tuple[views.Sample, Tensor]] = deque(maxlen=_SAMPLES)
        self._examples: dict[str, deque[tuple[int, Tensor]]] = {}
        self._lock = Lock()
        self._last = 0

    def add(self, inputs: Tensor, judged: Sequence[views.Judged], numbers: Sequence[int | None]) -> None:
        """Show samples, and keep accepted ones as examples of their class."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        with self._lock:
            for image, each, number in zip(inputs, judged, numbers, strict=True):
                self._last += 1
                where = live_picture(self._last) if image.ndim == 3 else None
                self._samples.append((views.Sample(self._last, now, each, number, where), image))
                if not each.novel:
                    self.accepted[each.predicted] += 1
                    examples = self._examples.setdefault(each.predicted, deque(maxlen=_EXAMPLES))
                    examples.append((self._last, image))

    def samples(self, most: int) -> list[views.Sample]:
        """List the last samples, the newest first."""
        with self._lock:
            return [sample for sample, _ in reversed(self._samples)][:most]

    def image(self, number: int) -> Tensor:
        """Give the image of a sample, or of an example."""
        with self._lock:
            every = [(sample.id, image) for sample, image in self._samples]
            every += [pair for examples in self._examples.values() for pair in examples]
        for each, image in every:
            if each == number:
                return image
        raise DataError(f"sample {number} is not kept any more; only the last {_SAMPLES} are")

    def examples(self, names: Sequence[str]) -> list[tuple[str, Tensor, str]]:
        """List examples of classes, the newest first: the class, the image and where its picture is."""
        with self._lock:
            return [
                (name, image, live_picture(number))
                for name in names
                for number, image in reversed(self._examples.get(name, ()))
            ]


def live_picture(number: int) -> str:
    """Say where the picture of a sample is."""
    return f"/live/{number}.png"


def kept_picture(number: int) -> str:
    """Say where the picture of an image that waits for a person is."""
    return f"/images/{number}.png"

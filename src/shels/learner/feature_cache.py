"""Features of a frozen backbone, kept on disk by what an image shows and how it is prepared.

A second training on the same photos needs no pass through the backbone. `SHELS_CACHE` names another place
than the user's cache directory, or is `off`. Files that cannot be read are computed again; deleting the
directory loses nothing but time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import torch
from torch import Tensor

from shels.config import Augmentation, to_dict
from shels.data.augmentation import augmented, drawn
from shels.data.preparation import Preparation
from shels.errors import ShelsError
from shels.files import read_tensors, to_bytes, write_whole
from shels.model.backbone import Backbone
from shels.runtime import derived_seed
from shels.training import Progress

VARIABLE = "SHELS_CACHE"
STAGE = "making features"
_BATCH = 32


def cache_directory() -> Path | None:
    """Return where features are kept, None where they are not."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen == "off":
        return None
    users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return Path(chosen) if chosen else users / "shels"


def features_of(
    backbone: Backbone,
    prepare: Preparation,
    inputs: Tensor,
    augmentation: Augmentation | None = None,
    *,
    views: int = 0,
    seed: int = 0,
) -> Generator[Progress, None, Tensor]:
    """Return features of images as they are, and of views of them changed at random: (1 + views, n, d).

    Reports how many images are done. What was computed is kept, also where the caller stops on the way.
    """
    changes = [None, *(derived_seed(seed, "view", view) for view in range(views if augmentation else 0))]
    kept = [_Kept(backbone, prepare, augmentation, change) for change in changes]
    found = [each.lookup(inputs) for each in kept]
    total = sum(int(missing.sum()) for _, missing in found)
    done = 0
    for each, (rows, missing) in zip(kept, found, strict=True):
        places = missing.nonzero().flatten()
        try:
            for part in torch.split(places, _BATCH) if len(places) else ():
                rows[part] = each.computed(inputs[part], part)
                missing[part] = False
                done += len(part)
                yield Progress(done, total, stage=STAGE)
        finally:
            each.keep(inputs, rows, places[~missing[places]])
    return torch.stack([rows for rows, _ in found])


class _Kept:
    """Features of one kind that are on disk: of one backbone, one preparation, one change of the images."""

    def __init__(
        self, backbone: Backbone, prepare: Preparation, augmentation: Augmentation | None, change: int | None
    ) -> None:
        self.backbone, self.prepare, self.augmentation, self.change = backbone, prepare, augmentation, change
        changed = [] if change is None or augmentation is None else [to_dict(augmentation), change]
        about = repr([backbone.origin.weights, backbone.origin.mean, backbone.origin.sd, prepare.shape])
        about += repr([prepare.image_fit, *changed])
        place = cache_directory()
        self.directory = place and place / "features" / hashlib.sha256(about.encode()).hexdigest()[:16]

    def lookup(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features that are there, and which images have none: (n, d), (n,)."""
        device = self.backbone.mean.device
        rows = torch.zeros(len(inputs), self.backbone.features, device=device)
        there = self._read()
        keys = _keys(inputs) if there else []
        missing = torch.ones(len(inputs), dtype=torch.bool)
        for row, key in enumerate(keys):
            if key in there:
                rows[row], missing[row] = there[key].to(device), False
        return rows, missing

    @torch.no_grad()
    def computed(self, images: Tensor, places: Tensor) -> Tensor:
        """Return features of images; a view is drawn for each from its place."""
        shown = self.prepare(images.to(self.backbone.mean.device))
        if self.change is not None and self.augmentation is not None:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(derived_seed(self.change, "images", int(places[0])))
                shown = augmented(shown, drawn(shown), self.augmentation, unit=True)
        found: Tensor = self.backbone(shown)
        return found

    def keep(self, inputs: Tensor, rows: Tensor, places: Tensor) -> None:
        """Write new features into a file of their own; where that fails, they are not kept."""
        if self.directory is None or not len(places):
            return
        keys = torch.tensor([list(bytes.fromhex(key)) for key in _keys(inputs[places])], dtype=torch.uint8)
        content = to_bytes({"keys": keys, "features": rows[places].cpu()})
        with suppress(OSError):
            write_whole(self.directory / f"{hashlib.sha256(content).hexdigest()[:12]}.safetensors", content)

    def _read(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        if self.directory is None or not self.directory.is_dir():
            return found
        for path in sorted(self.directory.glob("*.safetensors")):
            with suppress(ShelsError, OSError, KeyError, ValueError):
                stored = read_tensors(path)
                keys, rows = stored["keys"], stored["features"]
                if rows.shape == (len(keys), self.backbone.features) and bool(rows.isfinite().all()):
                    names = [bytes(key).hex() for key in keys.tolist()]
                    found |= dict(zip(names, rows, strict=True))
        return found


def _keys(inputs: Tensor) -> list[str]:
    """Return a name for what each image shows, its size included."""
    about = repr((tuple(inputs.shape[1:]), str(inputs.dtype))).encode()
    rows = inputs.cpu().contiguous().flatten(1).numpy()
    return [hashlib.sha256(about + row.tobytes()).hexdigest()[:32] for row in rows]

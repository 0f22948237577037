"""Groups of images judged on a Ray cluster: CPUs decode them, an actor for each GPU, or CPU, judges them.

Ray Data carries groups from one to the other and holds back who is too fast. It keeps nothing: what is done
is what lies in shards, which the one process writes that asked for it.
"""

from __future__ import annotations

import logging
import math
import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from shels.cluster import Cluster
from shels.data import images, reading
from shels.data.finding import Entry
from shels.data.inputs import form
from shels.data.listing import Listing
from shels.data.preparation import Preparation
from shels.data.reading import Decoded
from shels.errors import ClusterError, ShelsError
from shels.learner.judging import Judged, JudgedGroups, Work, judged
from shels.learner.learner import Learner
from shels.learner.versions import resolve

_SLICE = 16
"""Groups that one task decodes, where they are of small images."""
_BYTES = 2**27
"""What it decodes at most."""
_MOST_TASKS = 4096
_MOST_LOSSES = 5
"""How often it begins again without any verdict between, before it gives up."""
_TO_DECODE = 0.2
"""The share of a CPU that decodes, beside the actor on it."""


@dataclass(frozen=True)
class _Decoding:
    """How images are decoded on whatever node: as in the process that asked for it, from the same folder."""

    size: int | None
    channels: str | None
    folder: str
    most_pixels: int

    def __call__(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Decode the groups of a slice, each a row."""
        with chdir(self.folder), images.pixel_limit(self.most_pixels):
            entries = (entry for piece in row["pieces"] for entry in piece.entries())
            try:
                return [self._group(start, stop, entries) for start, stop in pairwise(row["cuts"])]
            except ShelsError as error:
                return [{"start": row["cuts"][0], "group": error}]

    def _group(self, start: int, stop: int, entries: Iterator[Entry]) -> dict[str, Any]:
        some = islice(entries, stop - start)
        return {"start": start, "group": reading.decoded(some, self.size, self.channels)}


class _Judge:
    """A model in a process of its own, which judges groups as they come."""

    def __init__(self, sent: Sequence[Any], device: str) -> None:
        import ray  # noqa: PLC0415

        self._learner = learner_of(ray.get(sent[0]), device)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Judge the groups of a batch of rows."""
        pairs = zip(batch["start"], batch["group"], strict=True)
        return {"judged": [self._judged(int(start), group) for start, group in pairs]}

    def _judged(self, start: int, group: Decoded | ShelsError) -> Judged | ShelsError:
        """Judge a group; an error of ours is a value here, as Ray Data would make a text of it."""
        try:
            return group if isinstance(group, ShelsError) else Judged(start, judged(self._learner, group))
        except ShelsError as error:
            return error


def work_on(cluster: Cluster, model: Path, preparation: Preparation) -> Work:
    """Return what judges on a cluster, for `judging`; groups come back in any order.

    The model is sent to the actors; images must lie where every node sees them.
    """
    return partial(_judged_on, cluster, model, preparation)


def _judged_on(
    cluster: Cluster, model: Path, preparation: Preparation, listed: Listing, groups: Sequence[range]
) -> JudgedGroups:
    """Judge groups; where a node is lost, begin again on the others with what is left."""
    if groups:
        _require_inputs(cluster, [source.name for source in listed.sources])
    sent = cluster.ray.put(model_files(model))  # held here, for actors that are started later
    decoding = _Decoding(*form(preparation), str(Path.cwd()), images.max_pixels())
    left, losses = {rows.start: rows for rows in groups}, 0
    while left:
        most = max(1, min(_SLICE, _BYTES // (len(groups[0]) * math.prod(preparation.shape))))
        slices = list(_slices(listed, list(left.values()), most))
        try:
            for each in _verdicts(cluster, slices, decoding, sent):
                if left.pop(each.start, None) is not None:
                    losses = 0
                    yield each
        except cluster.ray.exceptions.RayError as error:
            losses += 1
            if isinstance(error, cluster.ray.exceptions.RayTaskError) or losses > _MOST_LOSSES:
                raise own_error(error) from error


def _verdicts(
    cluster: Cluster, slices: list[dict[str, Any]], decoding: _Decoding, sent: Any
) -> Iterator[Judged]:
    """Give verdicts as they come: tasks decode slices, actors judge their groups.

    Where there is no GPU, each CPU has an actor, and a small share for the decoding of images. An actor that
    is lost is not started anew: it would wait for room, and the rest for it.
    """
    from ray import data  # noqa: PLC0415
    from ray.util.annotations import RayDeprecationWarning  # noqa: PLC0415

    data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # errors are ours to say
    cpus, gpus = (int(sum(getattr(node, each) for node in cluster.nodes())) for each in ("cpus", "gpus"))
    rows = data.from_items(slices, override_num_blocks=min(len(slices), _MOST_TASKS))
    actors = max(1, min(gpus or cpus, len(slices)))
    decoded = rows.flat_map(decoding, num_cpus=1 if gpus else _TO_DECODE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RayDeprecationWarning)  # of max_restarts, which has no other place
        judged_rows = decoded.map_batches(
            _Judge,
            batch_size=1,
            compute=data.ActorPoolStrategy(size=actors),
            fn_constructor_args=([sent], "cuda" if gpus else "cpu"),
            num_cpus=None if gpus else 1 - _TO_DECODE,
            num_gpus=1 if gpus else None,
            max_restarts=0,
        )
    for row in judged_rows.iter_rows():
        if isinstance(row["judged"], ShelsError):
            raise row["judged"]
        yield row["judged"]


def _slices(listed: Listing, groups: Sequence[range], most: int) -> Iterator[dict[str, Any]]:
    """Put groups that follow each other together, so many as one task decodes."""
    runs: list[list[range]] = []
    for rows in groups:
        if not runs or len(runs[-1]) == most or runs[-1][-1].stop != rows.start:
            runs.append([])
        runs[-1].append(rows)
    wanted = [range(run[0].start, run[-1].stop) for run in runs]
    for run, pieces in zip(runs, listed.pieces(wanted), strict=True):
        yield {"cuts": [run[0].start, *(rows.stop for rows in run)], "pieces": pieces}


def _require_inputs(cluster: Cluster, names: Sequence[str]) -> None:
    """Raise where a node does not see the images, before it calls each of them unreadable."""
    paths = [str(Path(name).absolute()) for name in names if "://" not in name]
    for node, missing in cluster.on_each(cluster.workers(), _missing, [str(Path.cwd()), *paths]).items():
        if isinstance(missing, Exception):
            raise ClusterError(f"{node.name} does not answer: {missing}") from missing
        if missing:
            raise ClusterError(
                f"{node.name} does not see {missing}; put it where every node sees it, or give an address"
            )


def _missing(paths: Sequence[str]) -> str:
    return next((path for path in paths if not os.path.lexists(path)), "")


def model_files(model: Path) -> dict[str, bytes]:
    """Return the files of a saved model, to be sent where its folder is not seen."""
    files = [path for path in resolve(model).iterdir() if path.suffix in (".json", ".safetensors")]
    return {path.name: path.read_bytes() for path in files}


def learner_of(files: dict[str, bytes], device: str) -> Learner:
    """Load a model that came as the content of its files."""
    with tempfile.TemporaryDirectory(prefix="shels-") as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        return Learner.load(folder, device)


def own_error(error: Exception) -> ShelsError:
    """Return the error of ours that lies in one of Ray's, else what the cluster says in a line."""
    inside = getattr(error, "cause", None)
    if isinstance(inside, ShelsError):
        return inside
    return ClusterError(f"the cluster gave up: {str(error).strip().splitlines()[-1]}")

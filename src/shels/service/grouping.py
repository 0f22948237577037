"""Novel images told apart in a process of its own, with what the judging leaves of the processor.

It ends by itself when the one that started it is gone, however that went.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

from torch import Tensor

from shels.agent.separation import Separation, SeparationSettings, separate
from shels.errors import ShelsError

_UNWANTED = 19
"""How much the process stands back behind others: as far as it goes."""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""Told before it begins, for NumPy and scikit-learn do not ask PyTorch how many threads there should be."""


class Grouper:
    """Stands for `separate`; where the process is lost, it is done here and another is started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end: Connection | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; it takes a second or two until it is ready, which nobody waits for."""
        here, there = socket.socketpair()
        with there:
            code = f"from shels.service.grouping import work; work({there.fileno()})"
            self._process = subprocess.Popen(  # noqa: S603 - ourselves; Ctrl-C is not for it
                [sys.executable, "-c", code],
                pass_fds=[there.fileno()],
                start_new_session=True,
                env=os.environ | _ONE_THREAD,
            )
        self._end = Connection(here.detach())

    def __call__(
        self,
        features: Tensor,
        settings: SeparationSettings,
        *,
        known_means: Tensor | None = None,
        seed: int = 0,
    ) -> Separation:
        """Tell classes apart, as `separate` does."""
        with self._lock:
            if self._end is None:
                return separate(features, settings, known_means=known_means, seed=seed)
            try:
                means = None if known_means is None else known_means.numpy()
                self._end.send((features.numpy(), settings, means, seed))
                found = self._end.recv()
            except (OSError, EOFError):
                self.close()
                return separate(features, settings, known_means=known_means, seed=seed)
        if isinstance(found, ShelsError):
            raise found
        return Separation(Tensor(found[0]).long(), found[1])

    def close(self) -> None:
        """End the process."""
        if self._end is not None and self._process is not None:
            self._end.close()
            self._end = None
            try:
                self._process.wait(1)
            except subprocess.TimeoutExpired:
                self._process.terminate()
                self._process.wait()


def work(descriptor: int) -> None:
    """Answer at a socket until nobody asks any more."""
    os.nice(_UNWANTED)
    import sklearn.cluster  # noqa: F401, PLC0415 - what the first images would wait for
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    with suppress(EOFError, OSError), Connection(descriptor) as end:
        while True:
            features, settings, means, seed = end.recv()
            try:
                known = None if means is None else torch.from_numpy(means)
                found = separate(torch.from_numpy(features), settings, known_means=known, seed=seed)
                end.send((found.groups.numpy(), found.purity))
            except ShelsError as error:
                end.send(error)

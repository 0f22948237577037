"""A service that is started many times over and killed: everything is imported once, each start is a fork.

    python -m tests.service.killable HOME

For each line that it reads it starts one and answers with its process and port, and once it is dead.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import scipy.special  # noqa: F401 - what the first request would wait for
import sklearn.cluster  # noqa: F401
import torch
import uvicorn

from shels.service.app import create_app
from shels.service.owner import opened
from shels.service.running import Address, listening_at


def serve(home: Path) -> None:
    torch.set_num_threads(1)
    with opened(home, "cpu", apart=False) as service, listening_at(Address(port=0)) as listening:
        sys.stdout.write(f"{os.getpid()} {listening.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(create_app(service), log_level="error")
        uvicorn.Server(config).run(sockets=[listening])


def main() -> None:
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            serve(Path(sys.argv[1]))
            os._exit(0)
        os.waitpid(child, 0)
        sys.stdout.write("ended\n")  # and lets go of the lock
        sys.stdout.flush()


if __name__ == "__main__":
    main()

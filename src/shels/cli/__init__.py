"""The command line: `shels train`, `shels evaluate`, `shels detect`, `shels data`, `shels demo`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command that the user typed, and leave with 0 (done), 1 (failed) or 2 (wrong usage)."""
    # Threads that have nothing to do sleep: where other programs need the cores, those that wait awake make
    # a training five times slower. Torch reads this when it is loaded; whoever sets it is obeyed.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from shels.cli.app import app  # noqa: PLC0415

        app()
    except KeyboardInterrupt:  # before a command runs, which says more
        sys.stderr.write("error: interrupted\n")
        sys.exit(1)

"""The command line: `shels train`, `shels evaluate`, `shels detect`, `shels data`, `shels demo`."""

from __future__ import annotations


def main() -> None:
    """Run the command that the user typed, and leave with 0 (done), 1 (failed) or 2 (wrong usage)."""
    from shels.cli.app import app  # noqa: PLC0415

    app()

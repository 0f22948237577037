"""`python -m shels`: the command line where the `shels` script is not on the path."""

from __future__ import annotations

from shels.cli import main

if __name__ == "__main__":
    main()

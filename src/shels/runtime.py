"""Devices and random draws, chosen here and nowhere else."""

from __future__ import annotations

import hashlib
import secrets

import torch

from shels.errors import SettingsError


def device(name: str | torch.device = "auto") -> torch.device:
    """Return the device to compute on; "auto" takes a CUDA GPU where there is one."""
    if isinstance(name, torch.device):
        return name
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(name)
    except RuntimeError as error:
        raise SettingsError(f'device must be "auto", "cpu" or "cuda", got {name!r}') from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise SettingsError(
            f'device {name!r} was asked for, but no CUDA GPU is usable here; use "auto" or "cpu"'
        )
    return chosen


def derived_seed(seed: int, *purpose: object) -> int:
    """Return a seed of its own for one purpose, so that a new draw never shifts the others."""
    text = repr((int(seed), *map(str, purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def generator(seed: int, *purpose: object) -> torch.Generator:
    """Return a CPU generator for one purpose: `generator(7, "batches", epoch)`.

    Draws are made on the CPU and moved, so a run sees the same numbers on every device.
    """
    return torch.Generator().manual_seed(derived_seed(seed, *purpose))


def fresh_seed() -> int:
    """Return a seed nobody chose, for runs that were given none."""
    return secrets.randbelow(2**31)

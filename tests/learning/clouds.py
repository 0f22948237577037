"""Small classes of vectors to learn, about corners of a cube, and how a network is trained on them."""

from __future__ import annotations

import torch

from shels.config import Adam, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples

TRAINING = TrainingSettings(Adam(1e-2), batch_size=16, steps=60, check_every=60)
PREPARE = Preparation((6,))


def cloud(position, n=40, seed=0):
    """Samples around a corner of the cube, non-negative."""
    draws = torch.Generator().manual_seed(100 * seed + position)
    inputs = (torch.rand(n, 6, generator=draws) * 0.5).index_fill(1, torch.tensor([position]), 1.0)
    return Samples(inputs, torch.zeros(n, dtype=torch.int64), (position,))


def known(classes=3, seed=0, n=40):
    """Samples of the first classes, all of them."""
    inputs = torch.cat([cloud(c, n, seed).inputs for c in range(classes)])
    return Samples(inputs, torch.arange(classes).repeat_interleave(n), tuple(range(classes)))

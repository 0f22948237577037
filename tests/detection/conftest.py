"""A toy problem for every rival: classes along axes of their own, novel samples along others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from shels.detection.head import Head
from shels.model.networks import Views

WIDTH, SHARED, KNOWN = 8, 10, 3


def samples(classes, n=60, seed=0):
    """Features of n samples of each class, and their labels: none negative, as a network's."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.tensor(classes).repeat_interleave(n)
    high = torch.eye(WIDTH)[labels] * 6 + torch.rand(len(labels), WIDTH, generator=draws)
    shared = torch.eye(SHARED)[labels] * 4 + torch.rand(len(labels), SHARED, generator=draws)
    return Views(shared, high), labels


def head(cosine, classes=KNOWN):
    """A head that has learned the first classes, a little unevenly."""
    draws = torch.Generator().manual_seed(7)
    weight = torch.eye(WIDTH)[:classes] + 0.05 * torch.randn(KNOWN + 1, WIDTH, generator=draws)[:classes]
    return Head(weight, None if cosine else torch.linspace(-0.2, 0.2, classes), cosine)


@pytest.fixture(scope="session")
def toy():
    return SimpleNamespace(samples=samples, head=head, known=list(range(KNOWN)), width=WIDTH, shared=SHARED)


@pytest.fixture(params=[False, True], ids=["linear", "cosine"])
def cosine(request):
    return request.param

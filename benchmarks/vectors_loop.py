"""A training on vectors against a plain loop over the same network: time per step, and the ratio.

    python benchmarks/vectors_loop.py

1,000 random vectors of 1,280 values in seven classes; cross-entropy over cosines and group sparsity, the same
batches of 64, Adam, validation every 100 steps. Rounds alternate; of each the best counts. CPU seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812

from shels.config import Adam, NetworkSettings, TrainingSettings
from shels.data.preparation import prepare_for
from shels.data.samples import Samples
from shels.model.networks import Network, build
from shels.training import TrialData, fit, shels_loss

CLASSES, VALUES, BATCH, EVERY, RATE, ALPHA = 7, 1280, 64, 100, 1e-3, 1e-3


def vectors(n: int) -> Samples:
    """Draw Gaussian classes."""
    draws = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % CLASSES
    means = 0.3 * torch.randn(CLASSES, VALUES, generator=draws)
    return Samples(means[labels] + torch.randn(n, VALUES, generator=draws), labels, tuple(range(CLASSES)))


def network() -> Network:
    """Make a fresh network."""
    return build(NetworkSettings("vectors"), (VALUES,), CLASSES, seed=0)


def house(training: Samples, held_out: Samples, steps: int) -> Callable[[], object]:
    """Prepare a training by the library."""
    settings = TrainingSettings(Adam(RATE), batch_size=BATCH, steps=steps, check_every=EVERY, alpha=ALPHA)
    data = TrialData.of(training, held_out, prepare_for(training.inputs, NetworkSettings()))
    net = network()
    return lambda: fit(net, shels_loss(net, settings), data, settings, seed=0)


def plain(training: Samples, held_out: Samples, steps: int) -> Callable[[], object]:
    """Prepare the loop that one would write, on vectors that are standardised beforehand."""
    net, prepare = network(), prepare_for(training.inputs, NetworkSettings())
    inputs, others = prepare(training.inputs), prepare(held_out.inputs)
    optimiser = torch.optim.Adam(net.parameters(), lr=RATE)
    hidden = net.body[1].weight

    def loop() -> None:
        order: list[torch.Tensor] = []
        for step in range(1, steps + 1):
            order = order or list(torch.split(torch.randperm(len(inputs)), BATCH))
            rows = order.pop()
            loss = F.cross_entropy(net(inputs[rows]), training.labels[rows])
            loss = loss + ALPHA * torch.linalg.vector_norm(hidden, dim=0).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if step % EVERY == 0:
                with torch.no_grad():
                    F.cross_entropy(net(others), held_out.labels).item()

    return loop


def seconds(work: Callable[[], object]) -> float:
    """Measure the CPU seconds that work takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def main() -> None:
    """Print time per step of both and their ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    every = vectors(1000)
    parts = every.take(torch.arange(880)), every.take(torch.arange(880, 1000))
    found = [[seconds(make(*parts, given.steps)) for make in (house, plain)] for _ in range(given.rounds)]
    ours, theirs = (1000 * min(times) / given.steps for times in zip(*found, strict=True))
    print(f"fit {ours:.2f} ms a step, plain loop {theirs:.2f} ms, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()

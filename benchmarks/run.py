"""Speed of shels against plain PyTorch, as ratios measured side by side in one run.

    python benchmarks/run.py [--rounds 5] [--json FILE]

Training: `fit` with the loss of SHELS against a bare loop over the same network, batches, optimiser and
memory format, without the regulariser. Detection: verdicts against the forward pass alone. Import: what
`import shels` adds to `import torch`.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F  # noqa: N812

from shels.config import AcceptShare, Adam, NetworkSettings, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.detection import Detector
from shels.model.networks import Network, build
from shels.runtime import device
from shels.training import TrialData, fit, shels_loss

SHAPE, CLASSES, BATCH, STEPS = (1, 32, 32), 5, 32, 40


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of some work, waiting for the GPU where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began


def ratio(ours: Callable[[], object], theirs: Callable[[], object], rounds: int) -> dict[str, float]:
    """Return the median times of two pieces of work done in turns, after a warm-up, and their ratio."""
    ours(), theirs()
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(rounds)]
    mine, plain = (median(times) for times in zip(*pairs, strict=True))
    return {"ours_s": mine, "plain_s": plain, "ratio": median(a / b for a, b in pairs)}


def samples(n: int) -> Samples:
    """Return random images in the form in which real ones arrive."""
    images = torch.randint(0, 256, (n, 1, 28, 28), dtype=torch.uint8)
    return Samples(images, torch.arange(n) % CLASSES, tuple(range(CLASSES)))


def network() -> Network:
    """Return the paper's network for MNIST on the device in use."""
    return build(NetworkSettings("six-conv-256"), SHAPE, CLASSES, seed=0).to(device())


def training(rounds: int) -> dict[str, float]:
    """Compare a training of SHELS with a plain loop."""
    settings = TrainingSettings(Adam(1e-4), batch_size=BATCH, steps=STEPS, check_every=STEPS)
    data, few, prepare = samples(BATCH * STEPS), samples(CLASSES), Preparation(SHAPE, "pad")
    ready = prepare(data.inputs).to(device(), memory_format=torch.channels_last)
    labels = data.labels.to(device())
    ours, theirs = network(), network().to(memory_format=torch.channels_last)
    optimiser = torch.optim.Adam(theirs.parameters(), lr=1e-4, fused=True)

    def plain() -> None:
        order = torch.randperm(len(labels), device=labels.device)
        for index in order.split(BATCH):
            loss = F.cross_entropy(theirs(ready[index]), labels[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

    loss = shels_loss(ours, settings)
    trial = TrialData(data, few, prepare)
    out = ratio(lambda: fit(ours, loss, trial, settings, seed=0), plain, rounds)
    return out | {"images_per_second": BATCH * STEPS / out["ours_s"]}


@torch.inference_mode()
def detection(rounds: int) -> dict[str, float]:
    """Compare verdicts on inputs with the forward pass of the same network."""
    net = network().eval()
    inputs = Preparation(SHAPE, "pad")(samples(2000).inputs).to(device())
    features = torch.cat([net.features(part) for part in inputs.split(500)])
    labels = (features @ net.head.weight.T).argmax(dim=1)
    covered = torch.arange(CLASSES, device=labels.device)
    features = torch.cat([features, net.head.weight])  # every class wins its own weights
    labels = torch.cat([labels, covered])
    detector = Detector(net.head.weight, AcceptShare()).fit(features, labels, (features, labels))

    def forward() -> None:
        for part in inputs.split(500):
            net(part)

    def judge() -> None:
        for part in inputs.split(500):
            detector.verdicts(net.features(part))

    return ratio(judge, forward, rounds)


def importing(rounds: int) -> dict[str, float]:
    """Compare importing shels beside torch with importing torch alone."""

    def run(code: str) -> Callable[[], object]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603

    out = ratio(run("import torch, shels"), run("import torch"), rounds)
    return {"shels_over_torch_s": out["ours_s"] - out["plain_s"], **out}


def main() -> None:
    """Measure everything and print one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    name = (
        torch.cuda.get_device_name()
        if torch.cuda.is_available()
        else platform.processor() or platform.machine()
    )
    print(f"{name}, {torch.get_num_threads()} threads, torch {torch.__version__}")
    out = {f.__name__: f(given.rounds) for f in (training, detection, importing)}
    for stage, figures in out.items():
        print(f"{stage:10s}", "  ".join(f"{key} {value:.4g}" for key, value in figures.items()))
    if given.json:
        given.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()

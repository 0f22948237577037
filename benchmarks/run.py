"""Speed of shels against plain PyTorch, as ratios measured side by side in one run.

    python benchmarks/run.py [--rounds 5] [--json FILE]

Training: `fit` with the loss of SHELS against a bare loop over the same network, batches, optimiser and
memory format, without the regulariser. Detection: verdicts against the forward pass alone, of SHELS's own
detector and of the Gaussian one. Accommodation: seconds for one class by `gaussian`. Import: what
`import shels` adds to `import torch`.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
import torch.nn.functional as F  # noqa: N812

from shels.config import AcceptShare, Adam, Gaussian, NetworkSettings, Settings, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.detection import Detector, GaussianDetector
from shels.learner import Learner
from shels.model.networks import Network, Views, build
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

    views = Views(*(torch.cat(v) for v in zip(*(net.views(part) for part in inputs.split(500)), strict=True)))
    classes = torch.arange(len(views.high), device=labels.device) % CLASSES
    fitted = GaussianDetector.fit(views, classes, AcceptShare(), Gaussian())
    gaussian = fitted.calibrated(fitted.sees(views), classes)

    def judge_gaussian() -> None:
        for part in inputs.split(500):
            gaussian.verdicts(gaussian.sees(net.views(part)))

    beside = {f"gaussian_{key}": value for key, value in ratio(judge_gaussian, forward, rounds).items()}
    return ratio(judge, forward, rounds) | beside


def accommodation(rounds: int) -> dict[str, float]:
    """Time a class taken in by `gaussian`: 6,000 images after features, and 500 images from pixels on."""
    net, prepare = network().eval(), Preparation(SHAPE, "pad")
    learner = Learner(
        network=net,
        classes=tuple(range(CLASSES)),
        taught=tuple(range(CLASSES)),
        detector=Detector(net.head.weight, AcceptShare()),
        preparation=prepare.to(device()),
        settings=Settings(NetworkSettings(), TrainingSettings(steps=1), AcceptShare()),
        seed=0,
        report={"taken_in": []},
    )
    known, few = samples(3000), samples(500).inputs
    views, labels = learner.views(known.inputs), known.labels.to(device())
    fitted = GaussianDetector.fit(views, labels, AcceptShare(), Gaussian())
    learner.detector = fitted.calibrated(fitted.sees(views), labels)
    rows = learner.seen(samples(6000).inputs)

    def after_features() -> None:
        learner.detector.grown(rows, CLASSES).verdicts(rows[:1])

    def from_pixels() -> None:
        learner.accommodate(few, "new").judge(few[:1])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # random images look like random images
        after_features(), from_pixels()
        times = [(seconds(after_features), seconds(from_pixels)) for _ in range(rounds)]
    first, second = (median(column) for column in zip(*times, strict=True))
    return {"after_features_6000_s": first, "from_pixels_500_s": second}


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
    out = {f.__name__: f(given.rounds) for f in (training, detection, accommodation, importing)}
    for stage, figures in out.items():
        print(f"{stage:10s}", "  ".join(f"{key} {value:.4g}" for key, value in figures.items()))
    if given.json:
        given.json.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()

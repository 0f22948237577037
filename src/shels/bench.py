"""Speed of shels against plain PyTorch: two pieces of work done in turns, and the ratio of their times.

A ratio within one run says more than seconds, which every machine has its own of. Work runs on the GPU where
there is one, and a clock is read only when the GPU has finished.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from shels import training
from shels.config import OWN, AcceptShare, Adam, Gaussian, NetworkSettings, Settings, TrainingSettings
from shels.data.preparation import Preparation
from shels.data.samples import Samples
from shels.detection.head import Head
from shels.detection.protocol import Context, Detector, KnownSamples, Labelled, LearnedClass
from shels.detection.registry import DETECTORS
from shels.errors import SettingsError
from shels.experiments.engine import versions
from shels.learner.learner import Learner, with_detector
from shels.learning.registry import method_of
from shels.model.networks import Network, Views, build
from shels.runtime import device, generator
from shels.training.data import TrialData, TrialTraining

Work = Callable[[], object]

SHAPE, CLASSES, BATCH = (1, 32, 32), 5, 32
PREPARE = Preparation(SHAPE, "pad")


@dataclass(frozen=True)
class Measure:
    """How fast one piece of work goes, beside a plain one where there is one to hold it against.

    amount: how many of `unit` are done in one go. seconds, plain_seconds: the median time of one go.
    ratio: our time over the other's, the median over the turns; under 1, ours is the faster.
    """

    stage: str
    what: str
    amount: int
    unit: str
    seconds: float
    against: str | None = None
    plain_seconds: float | None = None
    ratio: float | None = None

    @property
    def rate(self) -> float:
        """How many of `unit` are done in a second."""
        return self.amount / self.seconds

    @property
    def plain_rate(self) -> float | None:
        """The same of the work that it is held against."""
        return None if self.plain_seconds is None else self.amount / self.plain_seconds


@dataclass(frozen=True)
class Plan:
    """How much to measure: by default what two slow cores do in about two minutes.

    rounds: turns of each comparison. steps: length of a training. together: trials in a stack.
    images: how many are judged in one go.
    """

    rounds: int = 5
    steps: int = 10
    together: int = 3
    images: int = 200

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise SettingsError(f"rounds must be 1 or more, got {self.rounds}")


QUICK = Plan(rounds=1, steps=2, together=2, images=50)
ON_A_GPU = Plan(steps=300, together=10, images=10_000)  # less is over before a GPU is warm


def plan(*, quick: bool = False, rounds: int | None = None) -> Plan:
    """Say how much to measure on this machine."""
    chosen = QUICK if quick else ON_A_GPU if device().type == "cuda" else Plan()
    return chosen if rounds is None else replace(chosen, rounds=rounds)


def stages(chosen: Plan) -> dict[str, Callable[[], list[Measure]]]:
    """List what there is to measure, by name, each as work still to be done."""
    rounds, images = chosen.rounds, chosen.images
    return {
        "training": lambda: [alone(rounds, chosen.steps)],
        "stacked training": lambda: [stacked(rounds, chosen.together, chosen.steps)],
        "evaluation": lambda: [evaluation(rounds, images)],
        "detection": lambda: detection(rounds, images),
        "one by one": lambda: one_by_one(rounds, images // 10),
        "accommodation": lambda: accommodation(rounds),
        "import": lambda: [importing(rounds)],
    }


def document(chosen: Plan, measures: Sequence[Measure]) -> dict[str, Any]:
    """Give what was measured as plain data, with the machine that it was measured on."""
    found = [asdict(each) | {"rate": each.rate, "plain_rate": each.plain_rate} for each in measures]
    return {"machine": machine(), "plan": asdict(chosen), "measures": found}


def machine() -> dict[str, Any]:
    """Name what decides the seconds, though hardly the ratios."""
    gpu = torch.cuda.get_device_name() if device().type == "cuda" else None
    name = gpu or platform.processor() or platform.machine()
    return {"device": name, "threads": torch.get_num_threads(), "versions": versions()}


def seconds(work: Work) -> float:
    """Take the wall time of some work, waiting for the GPU where there is one."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else int
    wait()
    began = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - began


def compare(measure: Measure, ours: Work, plain: Work, rounds: int, *, warm_up: bool = True) -> Measure:
    """Fill a measure with the times of two pieces of work, done in turns after one that does not count."""
    if warm_up:
        ours(), plain()
    pairs = [(seconds(ours), seconds(plain)) for _ in range(rounds)]
    mine, other = (median(times) for times in zip(*pairs, strict=True))
    return replace(measure, seconds=mine, plain_seconds=other, ratio=median(a / b for a, b in pairs))


def alone(rounds: int, steps: int) -> Measure:
    """Compare a training by SHELS's loss with a bare loop over the same network, batches and optimiser.

    The bare loop has no regulariser, and its images are prepared beforehand.
    """
    samples, net = _samples(BATCH * steps), _network()
    data, settings, loss = _task(samples, net)
    measure = Measure("training", "fit, loss of SHELS", steps, "steps", 0, "a plain loop")
    ours = partial(training.fit, net, loss, data, settings, seed=0)
    return compare(measure, ours, _plain_loop(samples), rounds)


def stacked(rounds: int, together: int, steps: int) -> Measure:
    """Compare trials that are trained as one program with the same trials trained one after another."""
    seeds = range(together)
    nets, others = [_network(seed) for seed in seeds], [_network(seed) for seed in seeds]
    data, settings, loss = _task(_samples(BATCH * steps), nets[0])

    def all_at_once() -> None:
        trials = [TrialTraining(net, data, seed) for net, seed in zip(nets, seeds, strict=True)]
        training.fit_trials(trials, loss, settings, together=together)

    def one_after_another() -> None:
        for net, seed in zip(others, seeds, strict=True):
            training.fit(net, loss, data, settings, seed=seed)

    measure = Measure("training", f"{together} trials stacked", together * steps, "steps", 0, "one by one")
    return compare(measure, all_at_once, one_after_another, rounds)


@torch.no_grad()
def evaluation(rounds: int, images: int) -> Measure:
    """Compare a learner's evaluation, stored pixels to measures, with the forward pass alone."""
    net, detector, *_ = _detectors()
    learner, known, novel = _learner(net, detector), _samples(images), _samples(images, seed=1)
    parts = torch.split(torch.cat([_ready(known), _ready(novel)]), PREPARE.evaluation_batch)
    forward, judge = (lambda: [net(part) for part in parts]), (lambda: learner.evaluate(known, novel))
    measure = Measure("evaluation", "pixels to measures", 2 * images, "images", 0, "forward pass")
    return compare(measure, judge, forward, rounds)


@torch.no_grad()
def detection(rounds: int, images: int) -> list[Measure]:
    """Compare verdicts on prepared inputs with the forward pass of the same network."""
    net, shels, gaussian, fused = _detectors()
    parts = torch.split(_ready(_samples(images)), 500)

    def over_all(work: Callable[[Tensor], object]) -> Work:
        return lambda: [work(part) for part in parts]

    by_shels = over_all(lambda part: shels.verdicts(_high_level(net.features(part))))
    by_gaussians = over_all(lambda part: gaussian.verdicts(net.views(part)))
    by_all = over_all(lambda part: fused.verdicts(net.views(part)))
    measure = Measure("detection", "verdicts of SHELS", images, "images", 0, "forward pass")
    return [
        compare(measure, by_shels, over_all(net), rounds),
        compare(replace(measure, what="verdicts by Gaussians"), by_gaussians, over_all(net), rounds),
        compare(replace(measure, what="verdicts by fused scores"), by_all, over_all(net), rounds),
    ]


@torch.no_grad()
def one_by_one(rounds: int, images: int) -> list[Measure]:
    """Compare verdicts on images that come alone, from pixels on, with forward passes of the same network."""
    found = []
    for architecture, channels in (("six-conv-256", 1), ("vgg32", 3)):
        pixels = torch.split(_samples(images).inputs.expand(-1, channels, -1, -1).contiguous(), 1)
        for detector in ("gaussian", "fused", "fused-learned"):
            learner = _fitted(architecture, channels, detector)
            ready = [learner.preparation(each.to(device())) for each in pixels]
            measure = Measure(
                "one by one", f"{detector}, {architecture}", images, "images", 0, "forward pass"
            )
            judge, forward = partial(_each, learner.judge, pixels), partial(_each, learner.network, ready)
            found.append(compare(measure, judge, forward, rounds))
    return found


def _each(work: Callable[[Tensor], object], parts: Sequence[Tensor]) -> None:
    for part in parts:
        work(part)


def accommodation(rounds: int) -> list[Measure]:
    """Time a class taken in by `gaussian`: 6,000 images after features, and 500 images from pixels on."""
    net, _, gaussian, _ = _detectors()
    learner, few = _learner(net, gaussian), _samples(500).inputs
    rows = Views(*(_spread(view, 6000) for view in learner.views(few)))
    new, first = LearnedClass(lambda: rows), Views(*(view[:1] for view in rows))

    def timed(what: str, work: Work) -> Measure:
        with warnings.catch_warnings(action="ignore"):  # random images are all alike, as it rightly says
            work()
            return Measure("accommodation", what, 1, "classes", median(seconds(work) for _ in range(rounds)))

    return [
        timed("6,000 images, after features", lambda: gaussian.with_class(new).verdicts(first)),
        timed("500 images, pixels to verdicts", lambda: learner.accommodate(few, "new").judge(few[:1])),
    ]


def importing(rounds: int) -> Measure:
    """Compare importing shels beside torch with importing torch alone, each in a process of its own."""

    def run(code: str) -> Work:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603

    both, torch_alone = "import torch, shels", "import torch"
    measure = Measure("import", both, 1, "imports", 0, torch_alone)
    return compare(measure, run(both), run(torch_alone), rounds, warm_up=False)


def _samples(n: int, seed: int = 0) -> Samples:
    """Draw random images in the form in which real ones arrive."""
    images = torch.randint(0, 256, (n, 1, 28, 28), dtype=torch.uint8, generator=generator(seed, "bench", n))
    return Samples(images, torch.arange(n) % CLASSES, tuple(range(CLASSES)))


def _ready(samples: Samples) -> Tensor:
    return PREPARE(samples.inputs).to(device())


def _task(samples: Samples, net: Network) -> tuple[TrialData, TrainingSettings, training.Loss]:
    """Make what a training takes: one epoch over the samples, and a handful to validate on at its end."""
    steps = len(samples) // BATCH
    settings = TrainingSettings(Adam(1e-4), batch_size=BATCH, steps=steps, check_every=steps)
    data = TrialData.of(samples, samples.take(torch.arange(CLASSES)), PREPARE)
    return data, settings, training.shels_loss(net, settings)


def _network(seed: int = 0) -> Network:
    return build(NetworkSettings("six-conv-256"), SHAPE, CLASSES, seed=seed).to(device())


def _plain_loop(samples: Samples) -> Work:
    """Make a training as anybody would write it: cross-entropy, Adam, channels-last, nothing else."""
    net = _network().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    inputs, labels = _ready(samples), samples.labels.to(device())
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-4, fused=True)

    def loop() -> None:
        for index in torch.split(torch.randperm(len(labels), device=labels.device), BATCH):
            loss = F.cross_entropy(net(inputs[index]), labels[index])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    return loop


@cache
@torch.no_grad()
def _detectors() -> tuple[Network, Detector, Detector, Detector]:
    """Return a network, SHELS's detector, the Gaussian and the fused one, fit on what it makes of noise."""
    net = _network().eval()
    head = Head.of(net.head)
    shared, high = (_spread(view, 1000) for view in net.views(_ready(_samples(100))))
    rows = torch.cat([high, head.weight])  # every class wins its own weights
    both = Views(torch.cat([shared, shared[:CLASSES]]), rows)
    won = Labelled(both, (rows @ head.weight.T).argmax(dim=1))
    given = Labelled(Views(shared, high), torch.arange(1000, device=high.device) % CLASSES)
    context = Context(head, AcceptShare(), range(CLASSES))
    beside = replace(context, naming=lambda views: views.high @ head.weight.T)
    with warnings.catch_warnings(action="ignore"):
        made = [
            DETECTORS[name].fit(about, samples).calibrated(KnownSamples(samples, samples))
            for name, about, samples in (
                ("shels", context, won),
                ("gaussian", context, given),
                ("fused", beside, won),
            )
        ]
    return net, made[0], made[1], made[2]


def _fitted(architecture: str, channels: int, detector: str) -> Learner:
    """Make a learner that names classes by Gaussians, on what a network makes of noise."""
    way, samples = Gaussian(), _samples(100)
    prepare = Preparation((channels, *SHAPE[1:]), "pad")
    net = build(NetworkSettings(architecture), prepare.shape, CLASSES, seed=0).to(device()).eval()
    inputs = prepare(samples.inputs.expand(-1, channels, -1, -1)).to(device())
    seen = Views(*(_spread(view, 1000) for view in net.views(inputs)))
    many = replace(samples, inputs=torch.zeros(1000, 1), labels=torch.arange(1000) % CLASSES)
    given = Labelled(seen, many.labels.to(device()))
    asked = OWN if detector == "gaussian" else detector
    settings = Settings(NetworkSettings(), TrainingSettings(steps=1), AcceptShare(), way, asked)
    memory = {} if asked == OWN else method_of(way).first_memory(net, many, prepare, seen)
    with warnings.catch_warnings(action="ignore"):
        known = KnownSamples(given, given)
        return with_detector(net, samples.classes, known, prepare, settings, 0, memory=memory)


def _high_level(rows: Tensor) -> Views:
    return Views(rows[:, :0], rows)


def _learner(net: Network, detector: Detector) -> Learner:
    names = tuple(range(CLASSES))
    settings = Settings(NetworkSettings(), TrainingSettings(steps=1), AcceptShare())
    return Learner(net, names, names, detector, PREPARE, settings, seed=0, report={"taken_in": []})


def _spread(rows: Tensor, n: int) -> Tensor:
    """Return n rows that differ, out of fewer: enough for every direction that a Gaussian keeps."""
    many = rows.repeat(-(-n // len(rows)), 1)[:n]
    return many + 0.01 * many.std() * torch.randn_like(many)

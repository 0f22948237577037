"""An exported model against its network alone, both run by onnxruntime in turn on the same images.

    python benchmarks/export.py --network efficientnet-lite0 --size 128
    python benchmarks/export.py --network six-conv-256 --size 32 --detector fused

The images are digits, enlarged and coloured; networks are as they come, untrained but for the backbone, since
neither time nor equality depends on what was learned. One line for each batch size: milliseconds of the whole
file and of the network alone, and their ratio; then how many images are judged otherwise than by shels.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from shels.learner.learner import Learner
    from shels.model.networks import Network


def images(size: int, count: int, classes: int) -> tuple[Tensor, Tensor]:
    """Enlarge digits to colour images with some noise, as many as asked for, and give their labels."""
    import torch  # noqa: PLC0415
    import torch.nn.functional as F  # noqa: N812, PLC0415

    from shels.data.sources import load_named  # noqa: PLC0415

    draw, digits = torch.Generator().manual_seed(0), load_named("digits")
    parts = (digits.train, digits.test)
    inputs, labels = (torch.cat([getattr(part, name) for part in parts]) for name in ("inputs", "labels"))
    inputs, labels = inputs[labels < classes], labels[labels < classes]
    rows = torch.arange(count) % len(inputs)
    colour = torch.rand(count, 3, 1, 1, generator=draw)
    large = F.interpolate(inputs[rows].float() / 255 * colour, (size, size), mode="bilinear")
    noisy = large + 0.05 * torch.randn(large.shape, generator=draw)
    return (noisy.clamp(0, 1) * 255).to(torch.uint8), labels[rows]


def network_of(name: str, size: int, classes: int) -> Network:
    """Make a network by name, with EfficientNet-Lite0 as its packages bring it."""
    from shels.config import NetworkSettings  # noqa: PLC0415
    from shels.config.presets import PHOTOS  # noqa: PLC0415
    from shels.model.networks import build  # noqa: PLC0415

    settings = PHOTOS.network if name == PHOTOS.network.backbone else NetworkSettings(name)
    return build(settings, (3, size, size), classes, seed=0).eval()


def learner_of(given: argparse.Namespace, inputs: Tensor, labels: Tensor) -> Learner:
    """Fit a detector beside a network, half of the images held out."""
    import torch  # noqa: PLC0415

    from shels.config.presets import DEFAULT, PHOTOS  # noqa: PLC0415
    from shels.data.preparation import Preparation  # noqa: PLC0415
    from shels.data.samples import Samples  # noqa: PLC0415
    from shels.detection.protocol import KnownSamples, Labelled  # noqa: PLC0415
    from shels.learner.learner import with_detector  # noqa: PLC0415
    from shels.learner.pairing import needs_memory, paired  # noqa: PLC0415
    from shels.learning.protocol import views_of  # noqa: PLC0415
    from shels.learning.registry import method_of  # noqa: PLC0415

    network, preparation = network_of(given.network, given.size, given.classes), Preparation(inputs.shape[1:])
    seen = Labelled(views_of(network, inputs, preparation), labels)
    first = torch.arange(len(labels)) < len(labels) // 2
    samples, classes = KnownSamples(seen.take(first), seen.take(~first)), tuple(range(given.classes))
    preset = DEFAULT if network.backbone is None else PHOTOS
    settings, memory = paired(preset, None, given.detector), {}
    if needs_memory(settings):
        training = Samples(inputs[first], labels[first], classes)
        method = method_of(settings.accommodation)
        memory = method.first_memory(network, training, preparation, samples.training.features)
    return with_detector(network, classes, samples, preparation, settings, 0, memory=memory)


def alone(learner: Learner, inputs: Tensor) -> Any:
    """Export preparation and network without the detector."""
    from torch import nn  # noqa: PLC0415

    from shels.learner import graph, onnx_file  # noqa: PLC0415

    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = learner.network

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return tuple(self.network.views(learner.preparation(x)))

    return onnx_file.to_onnx(graph.traced(Alone(), inputs[:2]), "pixels", ("shared", "high"))


def milliseconds(sessions: list[Any], batch: Any, seconds: float) -> list[float]:
    """Time sessions in turn on one batch, for so long in all: the quickest run of each."""
    times: list[list[float]] = [[] for _ in sessions]
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(times[0]) < 5:
        for session, mine in zip(sessions, times, strict=True):
            began = time.perf_counter()
            session.run(None, {"pixels": batch})
            mine.append(time.perf_counter() - began)
    return [1000 * min(mine) for mine in times]


def main() -> None:
    """Export, compare and time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--network", default="efficientnet-lite0")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--detector", default="gaussian")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--int8", action="store_true", help="measure the file of eight bits, too")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    import tempfile  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    import onnxruntime  # noqa: PLC0415

    inputs, labels = images(given.size, given.images, given.classes)
    learner, options = learner_of(given, inputs, labels), onnxruntime.SessionOptions()
    options.intra_op_num_threads = given.threads
    with tempfile.TemporaryDirectory() as folder:
        made = learner.export(Path(folder) / "model.onnx", check=inputs)
        files = [(Path(folder) / "model.onnx").read_bytes(), alone(learner, inputs).SerializeToString()]
        if given.int8:
            small = learner.export(Path(folder) / "small.onnx", check=inputs, int8=True)
            files.append((Path(folder) / "small.onnx").read_bytes())
    sessions = [onnxruntime.InferenceSession(file, options) for file in files]
    for batch in given.batches:
        whole, network, *eight = milliseconds(sessions, inputs[:batch].numpy(), given.seconds)
        more = "".join(f", int8 {each:.3f} ms" for each in eight)
        ratio = f"ratio {whole / network:.3f}"
        print(f"batch {batch}: file {whole:.3f} ms, network {network:.3f} ms, {ratio}{more}")
    found = made.comparison
    otherwise = f"{found.different} judged otherwise, {found.ties} ties"
    print(f"{found.inputs} images: {otherwise}; the file has {made.bytes / 1e6:.1f} MB")
    if given.int8:
        agreed = small.comparison
        shares = f"classes {agreed.class_agreement:.4f}, verdicts {agreed.verdict_agreement:.4f}"
        print(f"int8 agrees on {shares}; the file has {small.bytes / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

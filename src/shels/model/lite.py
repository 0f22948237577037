"""EfficientNet-Lite as a backbone: its last stages, or its last maps as earlier models have them.

Its normalisation always computes as in evaluation, so it is no layer of its own where nothing is trained: it
goes into the convolution before, which takes a third off the time of a forward pass on a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from shels.model.head import unit
from shels.runtime import exporting

STAGES = 3
"""Of its last stages that features are taken from: the last of all knows ImageNet's classes best, those
before it know better what tells others (docs/log.md)."""
LENGTH = 8.0
"""How long the features of a stage are, so that layers of usual weights make something of them."""


class LiteMaps(nn.Module):
    """EfficientNet-Lite up to its last maps, without the layer that names ImageNet's classes.

    The features of models made before its stages were looked at.
    """

    def __init__(self, network: Any) -> None:
        super().__init__()
        network._fc = nn.Identity()  # noqa: SLF001 - its attributes are all called so
        self.network = network

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the last maps of normalised images: (n, 3, h, w) -> (n, 1280, h / 32, w / 32)."""
        network, maps = self.network, inputs
        for each in _ends(network, inputs):
            maps = each
        return _rectified(_convolved(network._conv_head, network._bn1, maps))  # noqa: SLF001


class LiteStages(nn.Module):
    """EfficientNet-Lite's last stages, the maps of each averaged over space and brought to one length."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        network._fc = network._conv_head = network._bn1 = nn.Identity()  # noqa: SLF001
        self.network = network
        widths = [block._block_args.output_filters for block in network._blocks]  # noqa: SLF001
        pairs = enumerate(zip(widths, [*widths[1:], None], strict=True))
        self.ends = [place for place, (width, following) in pairs if width != following][-STAGES:]

    def forward(self, inputs: Tensor) -> Tensor:
        """Return features of normalised images: (n, 3, h, w) -> (n, features)."""
        ends = (maps for place, maps in enumerate(_ends(self.network, inputs)) if place in self.ends)
        return torch.cat([LENGTH * unit(maps.mean(dim=(2, 3))) for maps in ends], dim=1)


def _ends(network: Any, inputs: Tensor) -> Iterator[Tensor]:
    """Give the maps that each block ends in."""
    maps = _rectified(_convolved(network._conv_stem, network._bn0, inputs))  # noqa: SLF001
    for block in network._blocks:  # noqa: SLF001
        maps = _through(block, maps)
        yield maps


def _through(block: Any, inputs: Tensor) -> Tensor:
    """Compute a block: wide, by place, narrow, and what came in added where that fits."""
    about, maps = block._block_args, inputs  # noqa: SLF001
    if about.expand_ratio != 1:
        maps = _rectified(_convolved(block._expand_conv, block._bn0, maps))  # noqa: SLF001
    maps = _rectified(_convolved(block._depthwise_conv, block._bn1, maps))  # noqa: SLF001
    maps = _convolved(block._project_conv, block._bn2, maps)  # noqa: SLF001
    fits = block.id_skip and about.stride == 1 and about.input_filters == about.output_filters
    return maps + inputs if fits else maps


def _convolved(layer: Any, norm: Any, maps: Tensor) -> Tensor:
    """Convolve and normalise; in one where no gradient is kept of the layer and no graph is written down."""
    if exporting() or (layer.weight.requires_grad and torch.is_grad_enabled()):
        found: Tensor = norm(layer(maps))
        return found
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    weight, bias = layer.weight * scale.view(-1, 1, 1, 1), norm.bias - norm.running_mean * scale
    about = layer.stride, layer.padding, layer.dilation, layer.groups
    return F.conv2d(layer.static_padding(maps), weight, bias, *about)


def _rectified(maps: Tensor) -> Tensor:
    """Cut maps off at 0 and 6, in place: nobody else reads them."""
    return F.relu6(maps, inplace=not exporting())

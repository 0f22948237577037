"""The architectures by name, the paper's and ours: chains of layers up to the last hidden one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from shels.data.preparation import LEAST_OF_EMBEDDING
from shels.errors import ArchitectureError
from shels.model.chains import Shape, Shared
from shels.model.normalisation import BatchNorm2d


def automatic(shape: Shape) -> str:
    """Return the architecture for inputs of one's own."""
    if len(shape) == 1:
        return "vectors"
    return "small" if min(shape[1:]) < 16 else "six-conv-256"


def six_conv(
    shape: Shape, linear: Sequence[int], dropout: float = 0.0, *, normalised: bool = False
) -> nn.Sequential:
    """Return the paper's six convolutions, pooled after every second, and the given linear layers.

    dropout: chance that a value is dropped after the first pooling and after the second. normalised: whether
    convolutions have batch normalisation, which the paper's have not.
    """
    return _conv_chain(shape, ((32, 32), (64, 64), (128, 128)), linear, dropout, normalised=normalised)


def _conv_chain(
    shape: Shape,
    blocks: Sequence[Sequence[int]],
    linear: Sequence[int],
    dropout: float = 0.0,
    *,
    normalised: bool = False,
) -> nn.Sequential:
    side = 2 ** len(blocks)
    channels, height, width = _image_shape(shape, side)
    flat = blocks[-1][-1] * (height // side) * (width // side)
    layers = _convolutions(channels, blocks, dropout, normalised=normalised)
    return nn.Sequential(*layers, nn.Flatten(), *linear_chain(flat, linear))


def _convolutions(
    channels: int, blocks: Sequence[Sequence[int]], dropout: float = 0.0, *, normalised: bool = False
) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for place, block in enumerate(blocks, 1):
        for out in block:
            norm = [BatchNorm2d(out)] if normalised else []  # takes off what a bias would add
            layers += [nn.Conv2d(channels, out, 3, padding=1, bias=not normalised), *norm, nn.ReLU()]
            channels = out
        layers.append(nn.MaxPool2d(2))
        if dropout and place < len(blocks):
            layers.append(nn.Dropout(dropout))
    return layers


def linear_chain(width: int, linear: Sequence[int]) -> nn.Sequential:
    """Return linear layers of these widths, each with a ReLU."""
    layers: list[nn.Module] = []
    for out in linear:
        layers += [nn.Linear(width, out), nn.ReLU()]
        width = out
    return nn.Sequential(*layers)


def _vgg32(shape: Shape, dropout: float = 0.0) -> nn.Sequential:
    """Return the network of the open-set literature, averaged over space to 128 features.

    L. Neal et al.: Open Set Learning with Counterfactual Images, ECCV 2018. Nine convolutions of 3 x 3 with
    batch normalisation; theirs halve maps by strides of 2 and have leaky ReLUs, these pool and have plain
    ones, as features must not be negative.
    """
    blocks = ((64, 64, 128), (128, 128, 128), (128, 128, 128))
    layers = _convolutions(_image_shape(shape, 8)[0], blocks, dropout, normalised=True)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _vectors(shape: Shape) -> nn.Sequential:
    """Return hidden layers on vectors: one on an embedding, which classes share as it is, two on a table."""
    if len(shape) != 1:
        raise ArchitectureError(f'architecture "vectors" needs vectors (n, d), got inputs of shape {shape}')
    if shape[0] < LEAST_OF_EMBEDDING:
        return linear_chain(shape[0], (256, 128))
    return nn.Sequential(Shared(), *linear_chain(shape[0], (256,)))


def _vgg16(shape: Shape) -> nn.Sequential:
    """Return VGG16 up to its last hidden layer."""
    blocks = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
    layers = _convolutions(_image_shape(shape, 32)[0], blocks)
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
    for width in (512 * 49, 4096):
        layers += [nn.Linear(width, 4096), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers)


def _image_shape(shape: Shape, least: int) -> Shape:
    if len(shape) != 3:
        raise ArchitectureError(f"a convolutional network needs images, got inputs of shape {shape}")
    if min(shape[1:]) < least:
        raise ArchitectureError(
            f"this network needs images of {least} pixels or more a side, got {shape[1]}x{shape[2]}; "
            "set image_size"
        )
    return shape


ARCHITECTURES: dict[str, Callable[[Shape], nn.Sequential]] = {
    "six-conv-256": lambda shape: six_conv(shape, (256,)),  # MNIST, FMNIST
    "six-conv-1024-512": lambda shape: six_conv(shape, (1024, 512)),  # SVHN
    "six-conv-2048-512": lambda shape: six_conv(shape, (2048, 512)),  # GTSRB; CIFAR10 within, as printed
    "six-conv-512": lambda shape: six_conv(shape, (512,)),  # CIFAR10 within, as the authors' code has it
    "six-conv-512-dropout": lambda shape: six_conv(shape, (512,), dropout=0.25),  # that code to the letter
    "vgg16": _vgg16,  # CIFAR10 across
    "six-conv-256-bn": lambda shape: six_conv(shape, (256,), normalised=True),  # with batch normalisation
    "six-conv-512-bn": lambda shape: six_conv(shape, (512,), normalised=True),
    "six-conv-1024-512-bn": lambda shape: six_conv(shape, (1024, 512), normalised=True),
    "six-conv-2048-512-bn": lambda shape: six_conv(shape, (2048, 512), normalised=True),
    "vgg32": _vgg32,  # the open-set protocol
    "vgg32-dropout": lambda shape: _vgg32(shape, dropout=0.2),
    "small-bn": lambda shape: _conv_chain(shape, ((32, 32), (64,)), (128,), normalised=True),
    "small": lambda shape: _conv_chain(shape, ((32, 32), (64,)), (128,)),  # the digits
    "vectors": _vectors,  # embeddings and tables
}

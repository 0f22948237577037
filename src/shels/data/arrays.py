"""Arrays as a caller has them into checked tensors, and labels of any kind into positions."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shels.data.samples import Label, Samples, check_inputs
from shels.errors import DataError


def from_arrays(
    x: Any, y: Any, origin: str = "the arrays", classes: Sequence[Label] | None = None
) -> Samples:
    """Return checked samples from arrays as numpy, scikit-learn or torch give them.

    x: images (n, h, w) or (n, h, w, c), uint8 0-255 or float 0-1; or vectors (n, d). A torch tensor
       (n, c, h, w) is taken as such when c is 1 or 3 and its last axis is not.
    y: (n,) labels of any hashable kind. `classes` fixes their order; by default they are sorted.

    >>> samples = from_arrays(np.zeros((3, 8, 8), np.uint8), ["dog", "cat", "dog"])
    >>> tuple(samples.inputs.shape), samples.classes, samples.labels.tolist()
    ((3, 1, 8, 8), ('cat', 'dog'), [1, 0, 1])
    """
    inputs = images_or_vectors(x, origin)
    labels = label_list(y, origin)
    if len(labels) != len(inputs):
        raise DataError(f"{origin}: {len(inputs)} inputs but {len(labels)} labels; give one label to each")
    names = tuple(sorted_classes(labels) if classes is None else label_list(classes, f"{origin}: classes"))
    return Samples(inputs, positions(labels, names, origin), names, origin=origin)


def images_or_vectors(x: Any, origin: str = "the inputs") -> Tensor:
    """Return checked inputs: images (n, channels, h, w), uint8 or float32; or vectors (n, d), float32."""
    values, channels_first = _numbers(x, origin)
    if 0 in values.shape or values.ndim == 0:
        raise DataError(f"{origin}: the array is empty (shape {values.shape}); give at least one sample")
    if values.ndim == 2:
        inputs = _copied(values, np.float32)
    else:
        inputs = _image_tensor(_channel_first(values, channels_first, origin), origin)
    check_inputs(inputs, origin)
    return inputs


def label_list(y: Any, origin: str) -> list[Label]:
    """Return labels as plain Python values, each hashable and none missing."""
    if isinstance(y, str) or not isinstance(y, Iterable):
        raise DataError(f"{origin}: labels must be a sequence, one for each sample, got {y!r}")
    shape = tuple(getattr(y, "shape", (0,)))
    if len(shape) != 1:
        raise DataError(
            f"{origin}: labels must have shape (n,), got {shape}; use y.ravel() for a column, "
            "y.argmax(1) for one-hot rows"
        )
    return [_label(value, row, origin) for row, value in enumerate(y)]


def sorted_classes(labels: Iterable[Label]) -> list[Label]:
    """Return the distinct labels, sorted; in order of first appearance where they cannot be sorted."""
    distinct = list(dict.fromkeys(labels))
    try:
        return sorted(distinct)  # type: ignore[type-var]
    except TypeError:
        return distinct


def positions(labels: Sequence[Label], names: Sequence[Label], origin: str) -> Tensor:
    """Return the place of each label in `names`: (n,) int64."""
    position = {name: i for i, name in enumerate(names)}
    for row, label in enumerate(labels):
        if label not in position:
            raise DataError(f"{origin}: the label {label!r} in row {row} is not one of {list(names)}")
    return torch.tensor([position[label] for label in labels], dtype=torch.int64)


def _numbers(x: Any, origin: str) -> tuple[np.ndarray[Any, Any], bool]:
    """Return x as a real numeric array, and whether a torch tensor of images has its channels first."""
    channels_first = False
    if isinstance(x, Tensor):
        channels_first = x.ndim == 4 and x.shape[1] in (1, 3) and x.shape[3] not in (1, 3)
        x = x.detach().cpu().to_dense() if x.layout != torch.strided else x.detach().cpu()
        x = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x.resolve_conj().resolve_neg()
    try:
        values = np.asarray(x)
    except ValueError as error:
        raise DataError(f"{origin}: not one array ({error}); give every sample the same shape") from error
    if values.dtype.kind not in "buif":
        raise DataError(
            f"{origin}: inputs must be real numbers, got an array of {values.dtype}; convert them, "
            "for example with x.astype(np.float32), and give every sample the same shape"
        )
    return values, channels_first


def _channel_first(values: np.ndarray[Any, Any], is_so: bool, origin: str) -> np.ndarray[Any, Any]:
    if values.ndim == 3:
        return values[:, None]
    if values.ndim == 4 and is_so:
        return values
    if values.ndim == 4 and values.shape[3] in (1, 3):
        return values.transpose(0, 3, 1, 2)
    hint = "reshape them: one sample alone is x[None]"
    if values.ndim == 4:
        first = values.shape[1] in (1, 3)
        hint = "use x.transpose(0, 2, 3, 1)" if first else "keep 1 or 3 channels, for example x[..., :3]"
    raise DataError(
        f"{origin}: inputs must be images (n, h, w) or (n, h, w, 1 or 3) or vectors (n, d), "
        f"got shape {values.shape}; {hint}"
    )


def _image_tensor(values: np.ndarray[Any, Any], origin: str) -> Tensor:
    if values.dtype.kind == "f":
        return _copied(values, np.float32)
    if values.dtype.kind == "b":
        return _copied(values, np.uint8) * 255
    low, high = int(values.min()), int(values.max())
    if high == 1 and values.dtype != np.uint8:
        warnings.warn(
            f"{origin}: whole-number images of 0 and 1 are taken as 0-255", UserWarning, stacklevel=2
        )
    if low < 0 or high > 255:
        raise DataError(
            f"{origin}: whole-number images must lie in 0-255, got {low} to {high}; scale them to 0-255"
        )
    return _copied(values, np.uint8)


def _copied(values: np.ndarray[Any, Any], dtype: type[np.generic]) -> Tensor:
    with np.errstate(over="ignore"):  # what overflows becomes infinite, and is refused as such
        return torch.from_numpy(np.array(values, dtype=dtype, order="C"))


def _label(value: Any, row: int, origin: str) -> Label:
    if isinstance(value, np.generic | np.ndarray | Tensor) and value.ndim == 0:
        value = value.item()
    try:
        hash(value)
    except TypeError:
        one_value = False
    else:
        one_value = not isinstance(value, Tensor)
    if not one_value:
        raise DataError(
            f"{origin}: the label in row {row} is a {type(value).__name__}; "
            "a label must be one hashable value, such as an int or a str"
        )
    if value is None or value != value:  # noqa: PLR0124 - true of NaN and NaT alone
        raise DataError(f"{origin}: the label in row {row} is missing ({value}); drop the row or label it")
    label: Label = value
    return label

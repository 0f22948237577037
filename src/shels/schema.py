"""What a stored file may hold, as tables, and the one checker of them all.

A table of tensors says of each name its dimensions by symbol ("classes width"), its kind of number and the
rule that its values keep. Symbols are resolved against what is known and against each other: two tensors of
one table that say "width" agree in it. Plain data, from JSON, is checked by functions that are put together
in the shape of the data. Whatever does not fit is a ModelFileError that names the place.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeAlias

import torch
from torch import Tensor

from shels.errors import ModelFileError

Check: TypeAlias = Callable[[Any, str], None]
"""Raises unless a value fits; the text says where it stands."""


class Rule(NamedTuple):
    """What the values of a tensor keep to, in words and as a test."""

    words: str
    holds: Callable[[Tensor], bool]


def _finite(value: Tensor) -> bool:
    return bool(value.isfinite().all()) if value.is_floating_point() else True


def _rising(value: Tensor) -> bool:
    if not value.numel():
        return False
    rows = value.reshape(-1, value.shape[-1]) if value.ndim else value.reshape(1, 1)
    in_order = bool((rows[:, 1:] >= rows[:, :-1]).all()) and not bool(rows.isnan().any())
    return in_order and bool(rows.isfinite().any(dim=1).all())


def _symmetric(value: Tensor) -> bool:
    return _finite(value) and bool(((value - value.mT).abs() <= 1e-5 * value.abs().amax()).all())


def _covariance(value: Tensor, slack: float = 1e3) -> bool:
    """Tell whether a matrix, or each of several, is symmetric and not negative in any direction."""
    if not _symmetric(value) or not value.shape[-1]:
        return False
    raised = value.clone()  # a little, by which rounding may have lowered it
    diagonal = raised.diagonal(dim1=-2, dim2=-1)
    trace = diagonal.sum(dim=-1, keepdim=True)
    diagonal += slack * torch.finfo(value.dtype).eps * trace + (1e-30 if slack else 0)
    return bool((trace >= 0).all()) and not bool(torch.linalg.cholesky_ex(raised).info.any())


FINITE = Rule("finite", _finite)
POSITIVE = Rule("finite and over 0", lambda value: _finite(value) and bool((value > 0).all()))
NOT_NEGATIVE = Rule("finite, 0 or more", lambda value: _finite(value) and bool((value >= 0).all()))
NOT_POSITIVE = Rule("finite, 0 or less", lambda value: _finite(value) and bool((value <= 0).all()))
RISING = Rule("in rising order, filled up with infinity", _rising)
RISING_OFF_ZERO = Rule(
    "in rising order, filled up with infinity, and not 0 on average",
    lambda value: _rising(value) and bool((torch.where(value.isfinite(), value, 0.0).sum(dim=-1) != 0).all()),
)
MEAN_AND_SD = Rule(
    "finite, standard deviations over 0", lambda value: _finite(value) and bool((value[..., 1] > 0).all())
)
SYMMETRIC = Rule("symmetric and finite", _symmetric)
COVARIANCE = Rule("symmetric and in no direction negative", _covariance)
DEFINITE = Rule("symmetric and positive definite", lambda value: _covariance(value, slack=0.0))


@dataclass(frozen=True)
class Spec:
    """What a tensor must be.

    dims: its dimensions: a symbol, a number, or * for any size of 1 or more; "" for a single value.
    """

    dims: str
    rule: Rule = FINITE
    kinds: tuple[torch.dtype, ...] = (torch.float32, torch.float64)


def single(dims: str, rule: Rule = FINITE) -> Spec:
    """Return what a tensor of single precision must be."""
    return Spec(dims, rule, (torch.float32,))


def double(dims: str, rule: Rule = FINITE) -> Spec:
    """Return what a tensor of double precision must be."""
    return Spec(dims, rule, (torch.float64,))


def integers(dims: str, low: int = 1, high: int = 2**53) -> Spec:
    """Return what a tensor of whole numbers must be, by default counts."""
    rule = Rule(f"{low} to {high}", lambda value: bool(((value >= low) & (value <= high)).all()))
    return Spec(dims, rule, (torch.int64,))


Table: TypeAlias = Mapping[str, Spec]


def check_tensors(tensors: Mapping[str, Tensor], table: Table, sizes: dict[str, int], where: str) -> None:
    """Raise unless exactly these tensors are there, as a table has them; new symbols are added to `sizes`.

    >>> sizes = {"classes": 2}
    >>> table = {"means": Spec("classes width"), "scatter": Spec("width width", COVARIANCE)}
    >>> check_tensors({"means": torch.zeros(2, 3), "scatter": torch.eye(3)}, table, sizes, "memory")
    >>> sizes
    {'classes': 2, 'width': 3}
    >>> check_tensors({"means": torch.zeros(2, 3), "scatter": -torch.eye(3)}, table, sizes, "memory")
    Traceback (most recent call last):
    shels.errors.ModelFileError: memory: scatter must be symmetric and in no direction negative
    """
    odd = sorted(set(tensors) ^ set(table))
    if odd:
        state = "is missing" if odd[0] in table else "does not belong there"
        raise ModelFileError(f"{where}: {odd[0]} {state}")
    for name, spec in table.items():
        value = tensors[name]
        if value.dtype not in spec.kinds or not _fits(value, spec.dims.split(), sizes):
            kinds = " or ".join(str(kind).removeprefix("torch.") for kind in spec.kinds)
            got = f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
            known = ", ".join(f"{size} {each}" for each, size in sizes.items() if each in spec.dims.split())
            expected = f"({', '.join(spec.dims.split())}) {kinds}"
            raise ModelFileError(f"{where}: {name} must be {expected}, got {got}{known and f'; {known}'}")
        if not spec.rule.holds(value):
            raise ModelFileError(f"{where}: {name} must be {spec.rule.words}")


def _fits(value: Tensor, dims: list[str], sizes: dict[str, int]) -> bool:
    if value.ndim != len(dims):
        return False
    for dim, size in zip(dims, value.shape, strict=True):
        if dim == "*":
            expected = max(size, 1)
        else:
            expected = int(dim) if dim.isdecimal() else sizes.setdefault(dim, size)
        if size != expected:
            return False
    return True


# Plain data -----------------------------------------------------------------------------------------------


def _refuse(where: str, rule: str, value: object) -> NoReturn:
    raise ModelFileError(f"{where} must be {rule}, got {reprlib.repr(value)}")


def _one(rule: str, fits: Callable[[Any], bool]) -> Check:
    def check(value: Any, where: str) -> None:
        if not fits(value):
            _refuse(where, rule, value)

    return check


def _is(value: object, kinds: type | tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def whole(low: int, high: int = 2**63 - 1) -> Check:
    """Return the check of a whole number."""
    rule = f"a whole number, {low} to {high}"
    return _one(rule, lambda value: _is(value, int) and low <= value <= high)


def number(low: float, high: float) -> Check:
    """Return the check of a finite number."""
    rule = f"a finite number, {low:g} to {high:g}"
    return _one(rule, lambda value: _is(value, (int, float)) and low <= value <= high)


def text(pattern: str = ".*") -> Check:
    """Return the check of text."""
    rule = f"text like {pattern}" if pattern != ".*" else "text"
    fits = re.compile(pattern, re.DOTALL).fullmatch
    return _one(rule, lambda value: isinstance(value, str) and fits(value) is not None)


flag = _one("true or false", lambda value: isinstance(value, bool))
"""Checks a value that is true or false."""
label = _one(
    "text or a finite number",
    lambda value: isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)),
)
"""Checks the name of a class: text, or a finite number."""


def or_none(check: Check) -> Check:
    """Return the check of a value that may be missing."""
    return lambda value, where: None if value is None else check(value, where)


def listed(item: Check, least: int = 0) -> Check:
    """Return the check of a list, each item of which passes the same check."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) < least:
            _refuse(where, f"a list of {least} or more", value)
        for place, each in enumerate(value):
            item(each, f"{where}[{place}]")

    return check


def record(
    fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None, others: Check | None = None
) -> Check:
    """Return the check of a table with these fields; others: of further ones, refused where it is None.

    >>> check = record({"step": whole(0)})
    >>> check({"step": 3}, "best")
    >>> check({"step": -1}, "best")
    Traceback (most recent call last):
    shels.errors.ModelFileError: best.step must be a whole number, 0 to 9223372036854775807, got -1
    """
    known = {**fields, **(optional or {})}

    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            _refuse(where, f"a table with {', '.join(fields)}", value)
        missing = [name for name in fields if name not in value]
        if missing:
            raise ModelFileError(f"{where.removesuffix(':')} lacks {', '.join(missing)}")
        for name, each in value.items():
            inner = known.get(name, others)
            if inner is None:
                raise ModelFileError(f"{where}: {reprlib.repr(name)} does not belong there")
            inner(each, f"{where}{' ' if where.endswith(':') else '.'}{name}")

    return check


def plain(value: Any, where: str, depth: int = 20) -> None:
    """Check data of any shape: finite numbers, no table or list deeper than twenty."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    if depth == 0 or (isinstance(value, float) and not math.isfinite(value)):
        _refuse(where, "plain data of finite numbers", value)
    for each in inner:
        plain(each, where, depth - 1)

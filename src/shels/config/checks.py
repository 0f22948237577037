"""Rules that settings keep. A field's type carries its rule; a value that breaks it is refused by name."""

from __future__ import annotations

import math
import numbers
import typing
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, dataclass_transform, get_args, get_origin

from shels.errors import SettingsError


def require(condition: object, name: str, rule: str, value: object) -> None:
    """Raise SettingsError unless a setting keeps its rule."""
    if not condition:
        raise SettingsError(f"{name} must be {rule}, got {value!r}")


@dataclass(frozen=True)
class Rule:
    """What a setting must be, in words and as a test; `plain` makes of it the plain value that is stored."""

    words: str
    holds: Callable[[Any], bool]
    plain: Callable[[Any], Any] = lambda value: value

    def checked(self, name: str, value: object) -> Any:
        """Return the plain value, or raise SettingsError with the name, the rule and the value."""
        require(self.holds(value), name, self.words, value)
        return self.plain(value)

    def or_none(self) -> Rule:
        """Let None through as well, for a setting that may be left out."""
        return Rule(
            self.words,
            lambda value: value is None or self.holds(value),
            lambda value: None if value is None else self.plain(value),
        )


def number(low: float, high: float = math.inf, *, over: bool = False) -> Rule:
    """Rule of a finite number from low (over: above it) to high, stored as a float."""
    words = f"a number over {low:g}" if over else f"a number, {low:g} or more"
    words += "" if high == math.inf else f" and at most {high:g}"

    def holds(value: Any) -> bool:
        plain = float(value) if _is_number(value) else math.nan
        return (low < plain if over else low <= plain) and plain <= high

    return Rule(words, holds, float)


def whole(low: int = 1) -> Rule:
    """Rule of a whole number, stored as an int."""

    def holds(value: object) -> bool:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= low

    return Rule(f"a whole number, {low} or more", holds, int)


def text(words: str) -> Rule:
    """Rule of a string that is so called: a name, a file's path."""
    return Rule(words, lambda value: isinstance(value, str))


Count: TypeAlias = Annotated[int, whole()]
CountOrZero: TypeAlias = Annotated[int, whole(0)]
Positive: TypeAlias = Annotated[float, number(0, over=True)]
NotNegative: TypeAlias = Annotated[float, number(0)]
Share: TypeAlias = Annotated[float, number(0, 1)]
ShareOverZero: TypeAlias = Annotated[float, number(0, 1, over=True)]
Flag: TypeAlias = Annotated[bool, Rule("true or false", lambda value: isinstance(value, bool))]
Name: TypeAlias = Annotated[str, text("a name")]


@dataclass_transform(frozen_default=True)
class Checked:
    """Base of settings: a frozen dataclass whose fields are checked against the rules in their types.

    kind: what plain data call it by, where it is one of several choices.

    >>> class Penalty(Checked, kind="penalty"):
    ...     beta: NotNegative = 1.0
    >>> Penalty(beta=3)
    Penalty(beta=3.0)
    >>> Penalty(beta=-1)
    Traceback (most recent call last):
    shels.errors.SettingsError: beta must be a number, 0 or more, got -1
    """

    kind: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, kind: str = "") -> None:
        if kind:
            cls.kind = kind
        dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, rules in _rules_of(kind).items():
            for rule in rules:
                object.__setattr__(self, name, rule.checked(name, getattr(self, name)))


@cache
def _rules_of(kind: Any) -> dict[str, tuple[Rule, ...]]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {each.name: _rules(kind, each.name, hints[each.name]) for each in fields(kind)}


def _rules(kind: Any, name: str, hint: Any) -> tuple[Rule, ...]:
    if get_origin(hint) is Annotated:
        return tuple(hint.__metadata__)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        words = " or ".join(f'"{each}"' for each in choices)
        return (Rule(words, lambda value: isinstance(value, str) and value in choices),)
    kinds = get_args(hint) or (hint,)
    if NoneType in kinds:
        inner = next(each for each in kinds if each is not NoneType)
        return tuple(rule.or_none() for rule in _rules(kind, name, inner))
    if all(map(is_dataclass, kinds)):
        names = [f"{each.__name__}(...)" for each in kinds]
        words = " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)
        return (Rule(words, lambda value: isinstance(value, kinds)),)
    raise TypeError(f"{kind.__name__}.{name} has no rule: give its type one, as in Annotated[{hint}, …]")


def _is_number(value: object) -> bool:
    if isinstance(value, numbers.Integral):
        return not isinstance(value, bool) and abs(int(value)) < 10**300
    return isinstance(value, numbers.Real) and math.isfinite(value)

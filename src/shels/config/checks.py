"""Checks of settings: each names the setting, the rule and the value."""

from __future__ import annotations

import math
import numbers

from shels.errors import SettingsError


def require(condition: object, name: str, rule: str, value: object) -> None:
    """Raise SettingsError unless a setting keeps its rule."""
    if not condition:
        raise SettingsError(f"{name} must be {rule}, got {value!r}")


def number(settings: object, name: str, low: float, high: float = math.inf, *, over: bool = False) -> None:
    """Check a field that holds a number, and keep it as a plain float."""
    value = getattr(settings, name)
    rule = f"a number over {low:g}" if over else f"a number, {low:g} or more"
    rule += "" if high == math.inf else f" and at most {high:g}"
    plain = math.nan
    if _is_number(value):
        plain = float(value)
    require((low < plain if over else low <= plain) and plain <= high, name, rule, value)
    object.__setattr__(settings, name, plain)


def _is_number(value: object) -> bool:
    if isinstance(value, numbers.Integral):
        return not isinstance(value, bool) and abs(int(value)) < 10**300
    return isinstance(value, numbers.Real) and math.isfinite(value)


def whole(settings: object, name: str, low: int = 1) -> None:
    """Check a field that holds a whole number, and keep it as a plain int."""
    value = getattr(settings, name)
    ok = isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= low
    require(ok, name, f"a whole number, {low} or more", value)
    object.__setattr__(settings, name, int(value))


def one_of(settings: object, name: str, *choices: str) -> None:
    """Check a field that holds one of a few words."""
    value = getattr(settings, name)
    require(isinstance(value, str) and value in choices, name, " or ".join(f'"{c}"' for c in choices), value)

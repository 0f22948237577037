"""Options into settings: a preset, with what was given laid over it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from shels.cli.options import exclude
from shels.config import AcceptShare, MeanMinusSd, Settings, ThresholdRule
from shels.errors import SettingsError, unknown_name

if TYPE_CHECKING:
    from shels.data.samples import Label
    from shels.data.splits import ClassSplit

_AUTHORS_CLASSES = {str(digit) for digit in range(10)}


def lay_over(base: Settings, network: Mapping[str, Any], training: Mapping[str, Any]) -> Settings:
    """Return a preset's settings with those replaced that were given, that is, are not None.

    Of the length in epochs and in steps, the one given takes the place of the preset's.
    """
    given = _given(training)
    exclude({"--epochs": given.get("epochs")}, {"--steps": given.get("steps")})
    rate = given.pop("learning_rate", None)
    if rate is not None:
        given["optimiser"] = replace(base.training.optimiser, learning_rate=rate)
    if "epochs" in given or "steps" in given:
        given = {"epochs": None, "steps": None} | given
    return replace(
        base, network=replace(base.network, **_given(network)), training=replace(base.training, **given)
    )


def threshold_rule(base: ThresholdRule, accept: float | None, sd: float | None) -> ThresholdRule:
    """Return the rule that was asked for, else the preset's."""
    exclude({"--accept": accept}, {"--sd": sd})
    try:
        if accept is not None:
            return AcceptShare(accept)
        return base if sd is None else MeanMinusSd(sd)
    except SettingsError as error:
        raise SettingsError(f"{'--sd' if accept is None else '--accept'}: {error}") from error


@dataclass(frozen=True)
class ClassChoice:
    """Which classes the user asked to know; without any word about it, all of them."""

    known: list[str] | None
    novel: list[str] | None
    known_count: int | None
    authors_order: int | None

    def __post_init__(self) -> None:
        exact = {"--known": self.known, "--novel": self.novel}
        exclude(exact, {"--known-count": self.known_count, "--authors-order": self.authors_order})

    @property
    def open(self) -> bool:
        """Whether nothing was said of which classes to learn."""
        return (self.known, self.novel, self.known_count, self.authors_order) == (None, None, None, None)

    def split(self, classes: tuple[Label, ...], seed: int) -> ClassSplit:
        """Return the known and the novel among the classes of a data set."""
        from shels.data import splits  # noqa: PLC0415

        if self.authors_order is not None:
            if {str(name) for name in classes} != _AUTHORS_CLASSES:
                raise SettingsError("--authors-order is for data with the ten classes 0 to 9; use --known")
            theirs = splits.authors_split(
                self.authors_order, 5 if self.known_count is None else self.known_count
            )
            return splits.exact_classes(classes, theirs.known, theirs.novel)
        if self.known_count is not None:
            return splits.draw_classes(classes, self.known_count, seed)
        if self.known is None and self.novel is None:
            return splits.ClassSplit(classes, ())
        return splits.exact_classes(classes, self.known, self.novel)


def names(values: list[str] | None) -> list[str] | None:
    """Return the names in options such as `--known 0,1 --known 2`, or None where there was none."""
    if not values:
        return None
    found = [name.strip() for value in values for name in value.split(",")]
    if "" in found:
        raise SettingsError(f"a list of classes has an empty name in it: {','.join(values)!r}")
    return found


def one_of(kind: str, value: str | None, choices: tuple[str, ...]) -> None:
    """Raise unless a value was left out or is one of these."""
    if value is not None and value not in choices:
        raise SettingsError(unknown_name(kind, value, choices))


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}

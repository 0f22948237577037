"""The paper's published figures (SHELS, CoLLAs 2022), each with its table, to set our own beside.

All are fractions 0-1 over ten trials. Accuracies are those of Tables 9 (across) and 10 (within), with the
sample standard deviation (ddof 1). AUROC is that of Tables 1 and 2, printed to more digits. Table 2 gives
the population's deviation (ddof 0; Table 10 prints FMNIST's with ddof 1). Table 1 does not say which; the
t-values of Table 9 follow when its deviations are taken with ddof 1.
Combined accuracies agree with the mean of the other two to 0.001, except where a note says otherwise.
"scaled-cosine" is what the paper calls its baseline (Techapanurak and others).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from shels.experiments.trials import MEASURES
from shels.experiments.variant import base_name

TRIALS = 10
"""How many trials stand behind every published figure."""


@dataclass(frozen=True)
class Published:
    """A mean and a standard deviation as printed.

    ddof: 1 where the deviation is the sample's, 0 where it is the population's. source: the table.
    note: what the paper contradicts itself in, or what was worked out here; empty as a rule.
    """

    mean: float
    sd: float
    ddof: Literal[0, 1]
    source: str
    note: str = ""
    trials: int = TRIALS

    @property
    def interval(self) -> tuple[float, float]:
        """The published interval: mean - sd to mean + sd, as printed, whichever deviation it is."""
        return self.mean - self.sd, self.mean + self.sd

    def contains(self, value: float) -> bool:
        """Return whether a value, usually a mean of ours, lies in the published interval, ends included.

        That says "as published, give or take what their trials gave or took"; it is no test of equality.
        """
        low, high = self.interval
        return low - 1e-9 <= value <= high + 1e-9  # 0.77 + 0.064 is a little less than 0.834


_Pair: TypeAlias = tuple[float, float]

# Mean and deviation of the four measures in the order of MEASURES: known, novel, combined, AUROC.
_TABLES: dict[str, dict[str, tuple[_Pair, _Pair, _Pair, _Pair]]] = {
    "within/mnist": {
        "scaled-cosine": ((0.9258, 0.0084), (0.7765, 0.0831), (0.8511, 0.0404), (0.91, 0.062)),
        "shels": ((0.8507, 0.0069), (0.9795, 0.0126), (0.9151, 0.0065), (0.96, 0.017)),
    },
    "within/fmnist": {
        "scaled-cosine": ((0.8435, 0.0441), (0.4364, 0.1276), (0.6399, 0.0575), (0.74, 0.084)),
        "shels": ((0.7768, 0.027), (0.6481, 0.1491), (0.7125, 0.0688), (0.79, 0.063)),
    },
    "within/svhn": {
        "scaled-cosine": ((0.8749, 0.0206), (0.5192, 0.071), (0.697, 0.0278), (0.8, 0.018)),
        "shels": ((0.7923, 0.0123), (0.6924, 0.0475), (0.7423, 0.0227), (0.82, 0.023)),
    },
    "within/cifar10": {
        "scaled-cosine": ((0.6783, 0.032), (0.5262, 0.0541), (0.6022, 0.0385), (0.69, 0.067)),
        "shels": ((0.6712, 0.0285), (0.5978, 0.0694), (0.6345, 0.044), (0.7, 0.059)),
    },
    "within/gtsrb": {
        "scaled-cosine": ((0.8871, 0.0201), (0.7635, 0.1306), (0.8253, 0.0728), (0.81, 0.061)),
        "shels": ((0.8394, 0.0126), (0.8143, 0.0457), (0.8268, 0.0224), (0.88, 0.055)),
    },
    "across/fmnist-mnist": {
        "scaled-cosine": ((0.8104, 0.0098), (0.8894, 0.0268), (0.8499, 0.0131), (0.77, 0.064)),
        "shels": ((0.7675, 0.0044), (0.8745, 0.0548), (0.8212, 0.027), (0.88, 0.063)),
    },
    "across/mnist-fmnist": {
        "scaled-cosine": ((0.9306, 0.0129), (0.9651, 0.0222), (0.9478, 0.0115), (0.94, 0.03)),
        "shels": ((0.8465, 0.0042), (0.9998, 0.0003), (0.9237, 0.0027), (0.99, 0.002)),
    },
    "across/svhn-cifar10": {
        "scaled-cosine": ((0.8414, 0.0057), (0.7849, 0.0414), (0.8131, 0.0203), (0.9, 0.01)),
        "shels": ((0.7711, 0.0067), (0.9045, 0.0113), (0.8378, 0.0055), (0.9, 0.007)),
    },
    "across/svhn-gtsrb": {
        "scaled-cosine": ((0.8414, 0.0057), (0.7301, 0.037), (0.7857, 0.0192), (0.89, 0.008)),
        "shels": ((0.771, 0.0067), (0.8488, 0.0149), (0.8099, 0.0091), (0.88, 0.009)),
    },
    "across/gtsrb-cifar10": {
        "scaled-cosine": ((0.8601, 0.0136), (0.971, 0.01), (0.9156, 0.0096), (0.9, 0.032)),
        "shels": ((0.8445, 0.005), (0.9708, 0.0108), (0.9076, 0.007), (0.96, 0.01)),
    },
    "across/gtsrb-svhn": {
        "scaled-cosine": ((0.8601, 0.0136), (0.9594, 0.0171), (0.9097, 0.014), (0.94, 0.018)),
        "shels": ((0.8445, 0.005), (0.9707, 0.0277), (0.9121, 0.0045), (0.98, 0.005)),
    },
    "across/cifar10-svhn": {
        "scaled-cosine": ((0.7553, 0.0046), (0.9484, 0.0197), (0.8524, 0.011), (0.95, 0.05)),
        "shels": ((0.7576, 0.001), (0.9668, 0.0054), (0.8621, 0.0025), (0.97, 0.003)),
    },
    "across/cifar10-gtsrb": {
        "scaled-cosine": ((0.7568, 0.0046), (0.9623, 0.04), (0.8595, 0.0203), (0.92, 0.025)),
        "shels": ((0.7576, 0.001), (0.9734, 0.0043), (0.8645, 0.0036), (0.93, 0.002)),
    },
}

# Mean and STANDARD ERROR over ten draws of five FMNIST classes, and the figure that prints them.
_EXCLUSIVITY = {
    "standard-linear": (0.69, 0.017, "Figure 9"),
    "scaled-cosine": (0.93, 0.028, "Figure 9"),
    "exclusive-sparsity": (0.704, 0.0196, "Figure 10"),
    "shels": (1.0, 0.001, "Figure 9"),
}

# What the paper contradicts itself in; the figure above is the one that the rest of the paper supports.
_NOTES = {
    ("within/mnist", "shels", "novel_accuracy"): "0.9672 in the bar chart of Figure 6, 0.9795 in Table 10",
    ("within/fmnist", "scaled-cosine", "combined_accuracy"): "Table 10 prints 83.99, a misprint of 63.99",
    ("within/svhn", "scaled-cosine", "auroc"): "0.80 in Table 2, 0.81 in Table 10",
    ("within/gtsrb", "scaled-cosine", "auroc"): "0.81 in Table 2, 0.82 in Table 10",
    ("across/gtsrb-svhn", "shels", "combined_accuracy"): "0.9121 printed, 0.9076 by its own two accuracies",
}
_SWAPPED = "Table 9 prints the AUROC of the two methods in each other's column"


@dataclass(frozen=True)
class Literature:
    """What somebody else's method comes to on the open-set protocol, five splits, as printed.

    auroc: None where the paper has no figure. Deviations are not printed, and networks and training differ
    from ours, so this stands beside our figures and is no interval for them.
    """

    title: str
    paper: str
    auroc: float | None


_MLS = "Vaze, Han, Vedaldi, Zisserman, ICLR 2022"
_CONOSR, _SPHOR = "Xu, Shen, Zhao, AAAI 2023", "Bahavan, Seneviratne, Halgamuge, 2025 (arXiv 2503.08049)"

LITERATURE: dict[str, tuple[Literature, ...]] = {
    f"osr/{name}": tuple(
        Literature(title, paper, auroc)
        for title, paper, auroc in zip(("MLS", "ConOSR", "SpHOR"), (_MLS, _CONOSR, _SPHOR), row, strict=True)
        if auroc is not None
    )
    for name, row in {
        "mnist": (0.993, None, None),
        "svhn": (0.971, 0.991, 0.991),
        "cifar10": (0.936, 0.942, 0.945),
    }.items()
}
"""Published figures of the open-set protocol by experiment, a variant's under its plain name."""


def literature(experiment: str) -> tuple[Literature, ...]:
    """Find what others published for an experiment on the open-set protocol, or nothing.

    >>> [each.title for each in literature("osr/mnist")]
    ['MLS']
    """
    return LITERATURE.get(base_name(experiment), ())


AS_PUBLISHED = {
    name: f"{name}@trained-images" for name in ("within/gtsrb", "across/gtsrb-cifar10", "across/gtsrb-svhn")
}
"""The variant in whose setting a published row was made, where that is not the setting of the experiment."""


def published(experiment: str, method: str, measure: str) -> Published | None:
    """Return what the paper published for an experiment, a method and a measure; None where nothing.

    A variant (`NAME@variant`) is set beside the figures of the experiment that it is of. measure: one of
    MEASURES; for "within/fmnist" and "exclusivity", the same networks, also "exclusivity".
    """
    experiment = base_name(experiment)
    if experiment in ("within/fmnist", "exclusivity") and measure == "exclusivity":
        return _exclusivity(method)
    row = _TABLES.get(experiment, {}).get(method)
    if row is None or measure not in MEASURES:
        return None
    mean, sd = row[MEASURES.index(measure)]
    within, note = experiment.startswith("within/"), _NOTES.get((experiment, method, measure), "")
    if measure != "auroc":
        return Published(mean, sd, 1, "Table 10" if within else "Table 9", note)
    return Published(mean, sd, 0, "Table 2", note) if within else Published(mean, sd, 1, "Table 1", _SWAPPED)


def _exclusivity(method: str) -> Published | None:
    if method not in _EXCLUSIVITY:
        return None
    mean, error, source = _EXCLUSIVITY[method]
    note = f"printed with its standard error, which is the deviation over the root of {TRIALS}"
    return Published(mean, error * math.sqrt(TRIALS), 1, source, note)

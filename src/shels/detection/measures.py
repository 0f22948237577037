"""What each measure is called and means, once for tables, reports, CSV and the command line."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Measure:
    """What a figure of a trial or an evaluation is called and means: a fraction 0-1, unless it counts.

    key: its name in records and files. heading: over a column; title: in a row of its own; meaning: one line.
    learning: heading and title where classes are learned one by one, if they differ there.
    percent: whether people see it in per cent. counts: whether it is no fraction but a number of things.
    higher_is_better: else the lowest is best.
    in_detection, in_learning, in_open_world: whether the overview tables of such experiments show it.
    """

    key: str
    heading: str
    title: str
    meaning: str
    learning: tuple[str, str] = ("", "")
    percent: bool = True
    counts: bool = False
    higher_is_better: bool = True
    in_detection: bool = False
    in_learning: bool = False
    in_open_world: bool = False

    def heading_in(self, *, learning: bool) -> str:
        """Name the column of a detection or of a learning experiment.

        >>> MEASURES["known_accuracy"].heading_in(learning=True)
        'with rejection'
        """
        return (learning and self.learning[0]) or self.heading

    def title_in(self, *, learning: bool) -> str:
        """Name the row of a detection or of a learning experiment."""
        return (learning and self.learning[1]) or self.title


MEASURES: dict[str, Measure] = {
    measure.key: measure
    for measure in (
        Measure(
            "closed_set_accuracy",
            "closed set",
            "closed-set accuracy",
            "right class, were nothing ever rejected",
            learning=("final", "final accuracy"),
            in_learning=True,
            in_open_world=True,
        ),
        Measure(
            "acceptance",
            "accepted",
            "known samples accepted",
            "known samples accepted, right or not",
            learning=("accepted", "accepted"),
        ),
        Measure("first_accuracy", "first", "first classes", "right class, of the classes known at first"),
        Measure(
            "added_accuracy",
            "added",
            "accuracy of added classes",
            "right class, of the classes taken in, each counted alike",
            in_learning=True,
        ),
        Measure(
            "forgetting",
            "forgetting",
            "forgetting",
            "lost of the best accuracy that each class ever had",
            higher_is_better=False,
            in_learning=True,
        ),
        Measure(
            "known_accuracy",
            "known",
            "known accuracy",
            "known samples accepted and right",
            learning=("with rejection", "accuracy with rejection"),
            in_detection=True,
            in_learning=True,
            in_open_world=True,
        ),
        Measure(
            "novel_accuracy",
            "novel",
            "novel accuracy",
            "novel samples rejected",
            learning=("next rejected", "next rejected"),
            in_detection=True,
        ),
        Measure(
            "combined_accuracy",
            "combined",
            "combined accuracy",
            "mean of known and novel accuracy",
            learning=("combined", "combined"),
            in_detection=True,
        ),
        Measure(
            "auroc",
            "AUROC",
            "AUROC",
            "known separated from novel by score; 50 % is chance",
            percent=False,
            in_detection=True,
            in_learning=True,
        ),
        Measure(
            "fpr95",
            "FPR at 95 %",
            "novel accepted where 95 % of known are",
            "novel accepted where 95 % of known are",
            learning=("next at 95 %", "next at 95 %"),
            higher_is_better=False,
        ),
        Measure("aupr_known", "AUPR known", "aupr known", "area under precision and recall of known samples"),
        Measure("aupr_novel", "AUPR novel", "aupr novel", "area under precision and recall of novel samples"),
        Measure(
            "exclusivity",
            "exclusivity",
            "exclusivity",
            "features that stand for one of two classes alone, mean over all pairs",
            percent=False,
        ),
        Measure(
            "exclusivity_by_firing",
            "exclusivity by firing",
            "exclusivity by firing",
            "the same where a feature stands for every class that it fires on, whatever its weight",
            percent=False,
        ),
        Measure(
            "novel_accuracy_by_class",
            "novel by class",
            "novel accuracy by class",
            "novel samples rejected, each class counted alike",
        ),
        Measure(
            "held_out_acceptance",
            "held-out accepted",
            "held out acceptance",
            "held-out samples of known classes accepted",
        ),
        Measure(
            "found_share",
            "found",
            "novel classes found",
            "novel classes that an agent took in",
            in_open_world=True,
        ),
        Measure(
            "batches_to_detection",
            "batches",
            "batches until detection",
            "batches with a novel class until it was taken in, mean over the novel classes; 1 is at first "
            "sight, and a class never taken in counts as one batch more than showed it",
            percent=False,
            counts=True,
            higher_is_better=False,
            in_open_world=True,
        ),
        Measure(
            "false_alarms_per_1000",
            "alarms per 1,000",
            "false alarms per 1,000 known samples",
            "alarms on batches of known classes alone, for each 1,000 samples in such batches",
            percent=False,
            counts=True,
            higher_is_better=False,
            in_open_world=True,
        ),
        Measure(
            "false_alarm_share",
            "known as novel",
            "known samples judged novel",
            "samples that an agent met of classes that it knew then, and judged novel",
            higher_is_better=False,
            in_open_world=True,
        ),
        Measure(
            "false_alarm_rate",
            "false alarms",
            "false-alarm rate",
            "test samples of all classes that are known at the end, judged novel",
            higher_is_better=False,
        ),
        Measure(
            "added_false_alarm_rate",
            "added false alarms",
            "false-alarm rate of added classes",
            "test samples of the classes taken in, judged novel, each class counted alike",
            higher_is_better=False,
        ),
        Measure(
            "ami",
            "AMI",
            "adjusted mutual information",
            "of true class and class named in the end, over test samples of the novel classes; 0 is chance",
            percent=False,
            in_open_world=True,
        ),
    )
}
"""Every measure by its key, in the order in which tables show them."""

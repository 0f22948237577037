"""What a page or a client is shown: plain frozen values, names of classes as text, rates as fractions 0-1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Judged:
    """A verdict on one sample; verdict: the class, or "novel"."""

    verdict: str
    novel: bool
    predicted: str
    score: float
    threshold: float
    p_value: float


@dataclass(frozen=True)
class Sample:
    """A sample that came in lately. number: where it is kept for a person. image: where its picture is."""

    id: int
    time: str
    judged: Judged
    number: int | None
    image: str | None


@dataclass(frozen=True)
class Image:
    """A picture of a novel image that is kept. said: what a person said of it, nothing while it waits."""

    number: int
    image: str | None
    judged: Judged
    said: str = ""


@dataclass(frozen=True)
class Live:
    """What came in lately, the newest first, the share called novel and the line from which that alarms.

    drift: why it looks like known classes seen through a change, in words. accepted, novel: since the home
    began. waiting: images that nobody has named.
    """

    version: int
    samples: list[Sample]
    window: int
    share: float
    alarm_share: float
    alarm: bool
    drift: str | None
    observed: int
    novel: int
    waiting: int
    groups: int


@dataclass(frozen=True)
class GroupView:
    """Novel images that look like one class; "rest" holds those in no group. images: some or all of them."""

    id: str
    size: int
    purity: float
    fixed: bool
    images: list[Image]


@dataclass(frozen=True)
class ClassView:
    """A class that is known. images: from how many it was learned. seen: accepted since the service began.

    provisional: whether the agent named it. examples: where pictures of it are.
    """

    name: str
    origin: str
    images: int | None
    by: str | None
    time: str | None
    threshold: float
    seen: int
    provisional: bool
    examples: list[str]


@dataclass(frozen=True)
class ChangeView:
    """A change of the history. counts: whether it still does; undoable: whether it can be taken back."""

    id: int
    kind: str
    words: str
    by: str
    time: str
    version: int
    before: int | None
    images: int
    group: str | None
    counts: bool
    undoable: bool
    undoes: int | None


@dataclass(frozen=True)
class VersionView:
    """A version of the model."""

    version: int
    time: str
    made_by: str
    current: bool


@dataclass(frozen=True)
class Difference:
    """What differs between two versions. thresholds, of classes in both, and accept: before and after."""

    old: int
    new: int
    added: list[str]
    removed: list[str]
    thresholds: dict[str, list[float]]
    accept: list[float | None]


@dataclass(frozen=True)
class Rate:
    """A share with its 95 % interval. count of n."""

    value: float
    low: float
    high: float
    count: int
    n: int


@dataclass(frozen=True)
class Rule:
    """What is accepted. promised: false alarms at most, on average, as far as held-out scores are enough.

    held_out: what they are on the held-out scores that thresholds were set on.

    seen: by what people said since the rule was set; unreviewed: called novel, and nobody said what it is.
    doubt: why the promise may not hold, nothing where it does.
    """

    accept: float | None
    promised: float | None
    held_out: float
    seen: Rate | None
    unreviewed: int
    guarantee: str
    doubt: str


@dataclass(frozen=True)
class Corrected:
    """How often people said of what was taken for one class: "not novel", "rubbish" or a name."""

    predicted: str
    said: str
    count: int


@dataclass(frozen=True)
class Moment:
    """The share called novel when something came in, and the line from which that alarms."""

    time: str
    share: float
    alarm_share: float
    alarm: bool


@dataclass(frozen=True)
class Quality:
    """How well it does, by what people said."""

    rule: Rule
    corrected: list[Corrected]
    over_time: list[Moment]
    drifts: list[str]
    confirmed_novel: int
    false_alarms: int
    rubbish: int


@dataclass(frozen=True)
class Example:
    """A known example near an image. image: where its picture is. distance: in the classes' spread."""

    name: str
    image: str
    distance: float


@dataclass(frozen=True)
class Why:
    """What stands behind a verdict on a kept image: a sentence, every class's p-value, known examples."""

    number: int
    words: str
    class_p_values: dict[str, float]
    aspects: dict[str, float]
    nearest: list[Example]


@dataclass(frozen=True)
class Done:
    """A change that was made, and what it did: learned in so many seconds, false alarms before and after.

    notes: what the library warns of, such as images that look like another class.
    """

    change: ChangeView
    seconds: float
    false_alarms_before: float
    false_alarms_after: float
    classes: list[str]
    words: str
    notes: list[str]


@dataclass(frozen=True)
class Job:
    """Work under way. state: waiting, running, done, failed or cancelled. progress: 0-1."""

    id: int
    what: str
    by: str
    state: str
    progress: float
    stage: str
    seconds: float
    done: Done | None
    error: str | None


@dataclass(frozen=True)
class Observation:
    """What came of samples that were fed in; repeated: this key was counted before, and not again."""

    event: int
    size: int
    novel: int
    repeated: bool
    share: float
    alarm_share: float
    alarm: bool


@dataclass(frozen=True)
class Event:
    """A line of the log. id: Last-Event-ID."""

    id: int
    kind: str
    words: str
    line: dict[str, Any]

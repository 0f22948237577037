"""Fine-tuning: go on training, on the new class alone.

The lower bound of every comparison: nothing is remembered and nothing is held, so what happens is forgetting.
The rivals that hold something train as this one does, but for what they add.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shels.config import FineTune
from shels.learning.protocol import Stores
from shels.learning.trained import TrainedMethod


@dataclass(frozen=True)
class FineTuneMethod(TrainedMethod):
    """Training on the new class alone; it remembers nothing."""

    settings: FineTune

    stores: ClassVar[Stores] = "nothing"

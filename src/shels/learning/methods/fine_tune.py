"""Fine-tuning: go on training, on the new class alone.

The lower bound of every comparison: nothing is remembered and nothing is held, so what happens is forgetting.
The rivals that hold something train as this one does, but for what they add.
"""

from shels.config import FineTune
from shels.learning.trained import TrainedMethod


class FineTuneMethod(TrainedMethod):
    """Training on the new class alone; it remembers nothing."""

    settings: FineTune
    stores = "nothing"

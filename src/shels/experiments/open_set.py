"""The protocol of the open-set literature: six known classes and four novel ones, in five splits.

The protocol is that of L. Neal, M. Olson, X. Fern, W.-K. Wong, F. Li: Open Set Learning with Counterfactual
Images, ECCV 2018. Its own split files are no longer to be had; the splits here are those by which the later
papers compare: `data/open_set_splits/osr_splits.py` of github.com/sgvaze/osr_closed_set_all_you_need (Vaze et
al., ICLR 2022, the source of MLS) and `split.py` of github.com/iCGY96/ARPL (Chen et al., TPAMI 2021), which
agree class by class. Some other work has another list, the same for all data sets and beginning with 0, 1, 2,
4, 5, 9; figures on it are not comparable split by split.
"""

from dataclasses import replace

from shels.config import NetworkSettings, Settings
from shels.config.presets import BEST

_MNIST = ((2, 4, 5, 9, 8, 3), (3, 2, 6, 9, 4, 0), (5, 8, 3, 2, 4, 6), (3, 7, 8, 4, 0, 5), (6, 3, 4, 9, 8, 2))
_SVHN = ((5, 3, 7, 2, 8, 6), (3, 8, 7, 6, 2, 5), (8, 9, 4, 7, 2, 1), (3, 8, 2, 5, 0, 6), (4, 9, 2, 7, 1, 0))
_CIFAR10 = (
    (0, 6, 4, 9, 1, 7), (7, 6, 4, 9, 0, 1), (1, 5, 7, 3, 9, 4), (8, 6, 1, 9, 0, 7), (2, 4, 1, 7, 9, 6)
)  # fmt: skip

SPLITS: dict[str, tuple[tuple[int, ...], ...]] = {
    "mnist": _MNIST,
    "svhn": _SVHN,
    "cifar10": _CIFAR10,
    "digits": _MNIST,
}
"""The known classes of trials 0-4 by data set; the digits take MNIST's."""

METHODS = ("max-logit", "shels", "shels-gaussian", "shels-fused")
"""What is compared: MLS, and our own."""

EPOCHS = {"mnist": 20, "svhn": 30, "cifar10": 80}
"""Length of training by data set; the literature takes 100 to 600 epochs of the same networks."""


def settings_of(name: str, base: Settings) -> Settings:
    """Give settings of the protocol on a data set: its network, trained from scratch as the preset best does.

    On the digits, which the literature does not have, the base's network and training.
    """
    if name not in EPOCHS:
        return base
    training = replace(BEST[name].training, batch_size=128, epochs=EPOCHS[name])
    network = NetworkSettings("vgg32", 32, scale=BEST[name].network.scale)
    return replace(base, network=network, training=training)

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

METHODS = ("max-logit", "shels", "shels-gaussian", "fused")
"""What is compared, as far as there is such a method: MLS, and our own."""

NETWORKS: dict[str, NetworkSettings] = {
    "mnist": NetworkSettings("six-conv-256", 32, "pad"),
    "svhn": NetworkSettings("six-conv-512", 32),
    "cifar10": NetworkSettings("six-conv-512", 32),
}
"""The network of each data set, trained from scratch; for another one, change it here."""


def settings_of(name: str, base: Settings) -> Settings:
    """Give settings of the protocol on a data set: the base's, with the network of the protocol."""
    return replace(base, network=NETWORKS.get(name, base.network))

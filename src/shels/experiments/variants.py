"""Variants of experiments: what the paper leaves open, or its authors' code does otherwise than its text.

One table. An entry that can be run is an experiment `NAME@VARIANT`: the same classes and seeds, and one
change, of settings or of the images that are measured on. The others say why there is nothing to run. "The
code" is the one that the authors released (github.com/Lifelong-ML/SHELS).
"""

from shels.experiments.unmeasured import UNMEASURED
from shels.experiments.variant import Variant

_FMNIST, _MNIST, _LEARNED = ("within/fmnist",), ("within/mnist",), ("incremental/mnist",)
_SHELS, _PENALTY = ("shels",), ("penalty",)

# Reported beside their experiments: the settings that made the published figures, and those that are printed.
_REPORTED = (
    Variant(
        "printed",
        "as printed",
        "112 pixels, linear layers of 2048 and 512 (appendix, layer and size tables)",
        "32 pixels, one linear layer of 512, dropout of 0.25 after the first two poolings",
        "the code's, without the dropout, as the published figures come from it",
        "code",
        ("within/cifar10",),
        {"network.architecture": "six-conv-2048-512", "network.image_size": 112},
        family="paper",
    ),
    Variant(
        "trained-images",
        "on trained images",
        "a test set of 12,569 images (appendix, data set sizes)",
        "a test folder, and not what is in it; 12,569 is the size of GTSRB's online test set, a part of the "
        "final training set (26,640 + 12,569 = 39,209 images), so that known accuracy was measured on images "
        "that were trained on",
        "the official final test set of 12,630 images; the variant measures on whole tracks of the training "
        "set, 12,569 images as near as tracks allow, drawn once for all trials; novel classes of another "
        "data set by its test images, as ever",
        "neither",
        ("within/gtsrb", "across/gtsrb-cifar10", "across/gtsrb-svhn"),
        measured_on="trained-images",
        family="paper",
    ),
    Variant(
        "dropout",
        "with dropout",
        "no dropout",
        "dropout of 0.25 after the first two poolings, in the network of CIFAR10 within alone",
        "none",
        "text",
        ("within/cifar10",),
        {"network.architecture": "six-conv-512-dropout"},
        family="apart",
    ),
)

_DETECTION = (
    Variant(
        "last-weights",
        "last weights",
        "a validation set, and not what it is for",
        "the weights of the lowest validation loss",
        "the weights of the lowest validation loss; the variant keeps the last",
        "code",
        _FMNIST,
        {"training.keep": "last"},
        methods=_SHELS,
    ),
    Variant(
        "validation-trained",
        "validation data trained on",
        "a training and a validation set",
        "after each epoch with a new lowest validation loss, one epoch on the validation data, and training "
        "goes on from there; on CIFAR10 the training set holds the validation set, on GTSRB they are one",
        "validation data are never trained on; the variant trains on all samples and still selects on those",
        "text",
        _FMNIST,
        {"training.validation": "trained"},
        methods=_SHELS,
    ),
    Variant(
        "mu-late",
        "μ one layer late",
        "μ = (l - 1) / (L - 1) in layer l of L",
        "μ = 0 in the first two layers, then (l - 2) / (L - 1): the last layer keeps some sparsity",
        "the text's",
        "text",
        _FMNIST,
        {"training.depth_weights": "late"},
        methods=_SHELS,
    ),
    Variant(
        "constant-mu",
        "constant μ",
        "sparsity that fades with depth; a constant μ is its ablation",
        "sparsity that fades with depth",
        "sparsity that fades with depth; the variant has μ = 0 in every layer",
        "both",
        _FMNIST,
        {"training.depth_weights": "constant"},
        methods=_SHELS,
    ),
    Variant(
        "novel-train-images",
        "novel classes by training images",
        "novel accuracy over the test images of novel classes",
        "novel accuracy over their training images, six times as many",
        "the text's",
        "text",
        _FMNIST,
        measured_on="novel-training",
        methods=_SHELS,
    ),
    Variant(
        "held-out-thresholds",
        "thresholds on held-out data",
        "thresholds over training samples",
        "thresholds over training samples",
        "the same; the variant sets them on the samples that were held out",
        "both",
        _FMNIST,
        {"rule.calibrated_on": "held-out"},
        methods=_SHELS,
    ),
    Variant(
        "softmax-twice",
        "scaled cosine through two softmaxes",
        "scaled cosine as its authors have it: cross-entropy over scaled cosines",
        "cross-entropy over the softmax of scaled cosines, so two of them; AUROC by SHELS's raw product",
        "the text's",
        "text",
        _FMNIST,
        methods=("scaled-cosine-authors",),
        against="scaled-cosine",
    ),
    Variant(
        "28px",
        "28 pixels",
        "32 pixels for MNIST and FMNIST, and not how 28 become 32",
        "28 pixels as they are, so 1152 values instead of 2048 after the convolutions",
        "28 pixels in a black frame of 32",
        "text",
        _MNIST,
        {"network.image_size": 28},
        methods=_SHELS,
    ),
    Variant(
        "firing-exclusivity",
        "features that fire",
        "exclusivity over the active features of two classes",
        "a feature is active where its mean over a class, times the class's weight, is over 0",
        "the code's, which gives the published figures; every trial also records the other reading, f > 0",
        "code",
        measures=("exclusivity_by_firing", "exclusivity"),
    ),
    Variant(
        "novel-by-class",
        "novel accuracy by class",
        "novel accuracy, and not whether over samples or over classes",
        "the mean over novel classes of the share rejected in each",
        "the share of all novel samples; every trial also records the code's, which differs on GTSRB and "
        "SVHN, where classes have unequal numbers of images",
        "neither",
        measures=("novel_accuracy_by_class", "novel_accuracy"),
    ),
)

_LEARNING = (
    Variant(
        "map-norm",
        "importance by map norm",
        "importance is a unit's mean activation; a convolution's unit has a whole map of them",
        "the L2 norm of a channel's mean map",
        "the mean over the map too",
        "text",
        _LEARNED,
        {"accommodation.importance": "map-norm"},
        methods=_PENALTY,
    ),
    Variant(
        "importance-added",
        "importance added up",
        "the mean over the samples of all classes so far",
        "the new class's mean is added to the old one, so importance grows with every class",
        "the text's",
        "text",
        _LEARNED,
        {"accommodation.merging": "sum"},
        methods=_PENALTY,
    ),
    Variant(
        "not-held",
        "zeroed weights not held",
        "weights from unused to important units are set to 0, and what keeps them there is not said",
        "they are set to 0 once, and free to grow while the class is learned",
        "held at 0 after every step",
        "neither",
        _LEARNED,
        {"accommodation.zeroed": "once"},
        methods=_PENALTY,
    ),
    Variant(
        "mean-vector-threshold",
        "new threshold over all scores",
        "a class's threshold is set on its own score",
        "a new class's threshold is the mean less the deviation of its samples' scores on every class, near "
        "0 or below, so that the class hardly rejects anything",
        "the text's",
        "text",
        _LEARNED,
        {"rule.new_class": "all scores"},
        methods=_PENALTY,
    ),
)

VARIANTS: dict[str, Variant] = {
    each.name: each for each in (*_REPORTED, *_DETECTION, *_LEARNING, *UNMEASURED)
}
"""Every choice by its name, those that can be run first."""


def variants_of(experiment: str) -> list[Variant]:
    """Give the variants that are run of an experiment, in the table's order."""
    return [each for each in VARIANTS.values() if experiment in each.experiments]

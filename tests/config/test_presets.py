import pytest

from shels.config import AcceptShare, Adam, AgsCl, Ewc, MeanMinusSd, Penalty, Settings, Sgd, Slda
from shels.config.presets import NAMES, preset, with_learner
from shels.errors import SettingsError
from shels.model.architectures import ARCHITECTURES

# From the paper's appendix, copied by hand: "Architecture details" (which linear layers),
# "Input image size in pixels for each dataset" and "Hyperparameters" (epochs).
#             linear layers  size  epochs
APPENDIX = {
    "mnist": ("256", 32, 10),
    "fmnist": ("256", 32, 20),
    "svhn": ("1024-512", 32, 20),
    "gtsrb": ("2048-512", 112, 10),
    "cifar10": ("512", 32, 30),  # as the authors' code has it; the appendix prints 2048-512 at 112
}


@pytest.mark.parametrize("data", APPENDIX)
def test_a_paper_preset_has_the_numbers_of_the_appendix(data):
    linear, size, epochs = APPENDIX[data]
    settings = preset(f"paper-{data}")
    assert settings.network.architecture == f"six-conv-{linear}"
    assert settings.network.image_size == size
    assert settings.network.head == "cosine"
    assert settings.network.pixels == "unit"
    assert settings.training.epochs == epochs
    assert settings.training.optimiser == Adam(learning_rate=0.0001)


def test_cifar10_across_data_sets_is_vgg16_by_sgd():
    settings = preset("paper-cifar10-across")
    assert settings.network.architecture == "vgg16"
    assert settings.network.image_size == 224
    assert settings.network.pixels == "imagenet"
    assert settings.network.head == "cosine"
    assert settings.training.epochs == 30
    assert settings.training.optimiser == Sgd(
        learning_rate=0.001, momentum=0.9, weight_decay=0.0005, decay=2, decay_epochs=4
    )


@pytest.mark.parametrize("data", [*APPENDIX, "cifar10-across"])
def test_what_the_paper_sets_for_all_data_is_set_for_all(data):
    training, rule = preset(f"paper-{data}").training, preset(f"paper-{data}").rule
    assert training.batch_size == 32
    assert training.alpha == 0.001
    assert training.depth_weights == "layer-wise"
    assert training.patience is None
    assert rule == MeanMinusSd(k=1)


# Tables "Dataset sizes" and "Dataset details": validation of training plus validation; CIFAR10's are left
# out, because its validation set lies inside its training set.
@pytest.mark.parametrize(("train", "held_out"), [(26400, 3600), (52800, 7200), (64466, 8791), (34502, 4707)])
def test_the_held_out_share_gives_the_papers_set_sizes(train, held_out):
    share = preset("paper-mnist").training.validation_share
    assert share * (train + held_out) == pytest.approx(held_out, rel=1e-3)


@pytest.mark.parametrize(("data", "fit"), [("mnist", "pad"), ("fmnist", "pad"), ("svhn", "resize")])
def test_images_of_28_pixels_are_framed_and_others_resized(data, fit):
    assert preset("paper", data).network.image_fit == fit


@pytest.mark.parametrize("data", APPENDIX)
def test_paper_means_the_settings_of_the_data_set(data):
    assert preset("paper", data) == preset(f"paper-{data}")


@pytest.mark.parametrize("data", [None, "digits", "my-images.npz"])
def test_paper_on_other_data_trains_as_many_steps_as_ten_epochs_of_mnist(data):
    settings = preset("paper", data)
    assert settings.training.steps == 10 * 26400 // 32
    assert settings.training.check_every == 26400 // 32
    assert settings.training.epochs is None
    assert settings.training.patience is None
    assert settings.training.optimiser == Adam(0.0001)
    assert (settings.training.batch_size, settings.training.alpha) == (32, 0.001)
    assert settings.network.architecture == "auto"
    assert settings.rule == MeanMinusSd(1.0)


@pytest.mark.parametrize("data", [None, "mnist"])
def test_the_default_is_short_on_few_samples_promises_a_rate_and_does_not_depend_on_the_data(data):
    settings = preset("default", data)
    assert settings.rule == AcceptShare(0.95, calibration="separate")  # of samples that chose nothing
    assert settings.network.architecture == "auto"
    assert settings.training.epochs is None
    assert settings.training.steps_by_root * 1000**0.5 < 4300 / 3
    assert settings.training.steps_by_root * 60_000**0.5 > settings.training.steps
    assert (settings.training.keep, settings.training.patience) == ("last", None)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_gives_settings_with_an_architecture_that_exists(name):
    settings = preset(name)
    assert isinstance(settings, Settings)
    assert settings.network.architecture in {"auto", *ARCHITECTURES}


def test_names_are_default_paper_and_one_for_each_set():
    assert NAMES == (
        "default",
        "best",
        "photos",
        "paper",
        "paper-mnist",
        "paper-fmnist",
        "paper-svhn",
        "paper-gtsrb",
        "paper-cifar10",
        "paper-cifar10-across",
    )


@pytest.mark.parametrize(
    ("name", "nearest"), [("paper-mnits", "paper-mnist"), ("defualt", "default"), ("mnist", "paper-mnist")]
)
def test_an_unknown_preset_is_answered_with_the_nearest(name, nearest):
    with pytest.raises(SettingsError, match=f"unknown preset '{name}'; did you mean '{nearest}'"):
        preset(name)


def test_a_learner_of_ordinary_networks_gets_a_linear_head_and_no_sparsity():
    base = preset("paper-mnist")
    settings = with_learner(base, Ewc(), standard=True, data="mnist")
    assert settings.accommodation == Ewc()
    assert (settings.network.head, settings.training.alpha) == ("linear", 0.0)
    assert settings.training.optimiser == base.training.optimiser
    assert settings.rule == base.rule


def test_other_learners_keep_the_network_of_shels():
    base = preset("default")
    settings = with_learner(base, Slda(), standard=False)
    assert (settings.network, settings.training) == (base.network, base.training)


def test_a_preset_s_own_learner_keeps_the_preset_s_numbers():
    settings = with_learner(preset("paper-gtsrb"), Penalty(), standard=False, data="gtsrb")
    assert settings == preset("paper-gtsrb")
    assert settings.accommodation.beta == 50_000


def test_ags_cl_takes_alpha_and_beta_of_the_experiment_that_it_is_compared_with():
    way = with_learner(preset("paper-fmnist"), AgsCl(), standard=True, data="fmnist").accommodation
    assert (way.mu, way.lam, way.rate_divisor) == (0.001, 3000, 8)
    elsewhere = with_learner(preset("default"), AgsCl(), standard=True, data="photos").accommodation
    assert (elsewhere.lam, elsewhere.rate_divisor) == (2000, 10)

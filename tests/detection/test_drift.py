from __future__ import annotations

import pytest
import torch

from shels.data.sources import load_named
from shels.detection.drift import STATISTICS, ImageStatistics, common_displacement, drift_of, image_statistics
from shels.errors import DataError


@pytest.fixture(scope="module")
def images():
    """Digits as floats 0-1, enlarged so that blur has room, and their labels."""
    data = load_named("digits").train
    scale = 255.0 if not data.inputs.is_floating_point() else 1.0
    larger = torch.nn.functional.interpolate(data.inputs.float() / scale, scale_factor=2, mode="bilinear")
    return larger.clamp(0, 1), data.labels


def noisy(values, sd=0.3):
    draws = torch.Generator().manual_seed(0)
    return (values + sd * torch.randn(values.shape, generator=draws)).clamp(0, 1)


def blurred(values):
    return torch.nn.functional.avg_pool2d(values, 5, stride=1, padding=2, count_include_pad=False)


def test_look_of_a_black_and_white_image_worked_by_hand():
    image = torch.zeros(1, 1, 8, 8)
    image[..., 4:] = 1.0  # one vertical step from 0 to 1: nothing is left after smoothing
    brightest, darkest, edge, noise = image_statistics(image)[0].tolist()
    assert (brightest, darkest, edge, noise) == (1.0, 0.0, 1.0, 0.0)


def test_noise_is_measured_in_the_units_of_the_pixels():
    draws = torch.Generator().manual_seed(0)
    flat = 0.5 + 0.1 * torch.randn(4, 1, 64, 64, generator=draws)
    noise = image_statistics(flat)[:, STATISTICS.index("noise")]
    quartile = 0.1 * 0.3186  # a quarter of normal values lie nearer to 0 than this many deviations
    assert noise.tolist() == pytest.approx([quartile] * 4, rel=0.1)


def test_whole_and_fractional_pixels_look_the_same():
    whole = torch.randint(0, 256, (5, 3, 9, 9), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert torch.allclose(image_statistics(whole), image_statistics(whole.float() / 255), atol=1e-6)


def test_images_are_measured_one_by_one_however_many_come_together(images):
    inputs, _ = images
    assert torch.equal(image_statistics(inputs[:600])[300:303], image_statistics(inputs[300:303]))


def test_darkness_halves_the_brightest_and_leaves_the_edges_as_steep(images):
    before, after = image_statistics(images[0][:50]), image_statistics(images[0][:50] * 0.5)
    assert torch.allclose(after[:, 0], before[:, 0] / 2)
    assert torch.allclose(after[:, 2], before[:, 2], atol=1e-5)


def test_vectors_have_no_look_and_are_never_unlike():
    vectors = torch.randn(6, 20, generator=torch.Generator().manual_seed(0))
    assert image_statistics(vectors).shape == (6, 0)
    assert not ImageStatistics.fit(vectors, torch.arange(6) % 2).unlike(vectors * 100).any()


@pytest.mark.parametrize(
    ("change", "least"),
    [(lambda x: x * 0.5, 0.95), (lambda x: x * 0.5 + 0.5, 0.95), (noisy, 0.95), (blurred, 0.8)],
    ids=["dark", "fog", "noise", "blur"],
)
def test_changed_images_of_known_classes_look_unlike_known_ones(images, change, least):
    inputs, labels = images
    known = ImageStatistics.fit(inputs[:700], labels[:700])
    assert known.unlike(inputs[700:]).double().mean() < 0.05
    assert known.unlike(change(inputs[700:])).double().mean() > least


def test_classes_never_seen_look_like_known_ones(images):
    inputs, labels = images
    for left_out in range(10):
        known = ImageStatistics.fit(inputs[labels != left_out], labels[labels != left_out])
        assert known.unlike(inputs[labels == left_out]).double().mean() < 0.3, left_out


def test_a_class_taken_in_looks_known_from_then_on(images):
    inputs, labels = images
    known = ImageStatistics.fit(inputs, labels)
    dark = inputs[labels == 3] * 0.5
    assert known.unlike(dark).all()
    wider = known.with_class(dark)
    assert wider.unlike(dark).double().mean() < 0.05
    assert wider.unlike(inputs).double().mean() <= known.unlike(inputs).double().mean()


MEANS = torch.tensor([[10.0, 0.0, 0.0], [0.0, 10.0, 0.0], [0.0, 0.0, 10.0]])


def cloud(centres, seed=0):
    draws = torch.Generator().manual_seed(seed)
    return centres + torch.randn(centres.shape, generator=draws)


def test_common_displacement_worked_by_hand():
    means = torch.tensor([[0.0], [4.0]])
    features = torch.tensor([[2.0], [8.0]])  # 2 and 4 from their means: squares 2 about 3; as is 18 about 5
    assert common_displacement(features, torch.tensor([0, 1]), means) == pytest.approx(1 - 2 / 18)


def test_known_classes_moved_alike_show_a_common_displacement_and_a_new_class_does_not():
    labels = torch.arange(300) % 3
    moved = cloud(MEANS[labels] + torch.tensor([6.0, 6.0, 6.0]))
    place = cloud(torch.tensor([7.0, 7.0, 7.0]).expand(300, 3))
    nearest = torch.cdist(place, MEANS).argmin(dim=1)
    assert len(nearest.unique()) == 3
    assert common_displacement(moved, labels, MEANS) > 0.8
    assert common_displacement(place, nearest, MEANS) < 0


def test_displacement_says_nothing_where_all_samples_are_like_one_class():
    features = cloud(MEANS[:1].expand(50, 3) + 5)
    assert common_displacement(features, torch.zeros(50, dtype=torch.int64), MEANS) == 0.0


@pytest.mark.parametrize(("share", "drift"), [(0.0, False), (0.2, False), (0.4, True), (0.9, True)])
def test_fewer_unlike_images_are_enough_where_classes_moved_alike(share, drift):
    labels = torch.arange(100) % 3
    found = drift_of(cloud(MEANS[labels] + 6), labels, MEANS, torch.arange(100) < 100 * share)
    assert found.drift is drift
    assert found.share_unlike == pytest.approx(share)
    assert f"{share:.0%} of the images" in found.reason


@pytest.mark.parametrize(("share", "drift"), [(0.4, False), (0.7, False), (0.9, True)])
def test_a_new_class_is_drift_only_if_nearly_all_its_images_look_unlike_known_ones(share, drift):
    place = cloud(torch.full((100, 3), 7.0))
    nearest = torch.cdist(place, MEANS).argmin(dim=1)
    assert drift_of(place, nearest, MEANS, torch.arange(100) < 100 * share).drift is drift


def test_what_cannot_be_judged_is_refused():
    with pytest.raises(DataError, match=r"\(n, c, h, w\) or \(n, d\), got Tensor \(2, 8, 8\)"):
        image_statistics(torch.zeros(2, 8, 8))
    with pytest.raises(DataError, match="finite"):
        image_statistics(torch.full((1, 1, 8, 8), torch.nan))
    with pytest.raises(DataError, match="got 2 and 3"):
        ImageStatistics.fit(torch.zeros(2, 1, 8, 8), torch.zeros(3, dtype=torch.int64))
    with pytest.raises(DataError, match="one image or more"):
        ImageStatistics(torch.zeros(1, 4), torch.ones(1, 4)).with_class(torch.zeros(0, 1, 8, 8))
    with pytest.raises(DataError, match="have 4 statistics, these inputs have 0"):
        ImageStatistics(torch.zeros(1, 4), torch.ones(1, 4)).unlike(torch.zeros(2, 5))
    with pytest.raises(DataError, match="got 0, 0 and 0"):
        drift_of(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), MEANS, torch.zeros(0))

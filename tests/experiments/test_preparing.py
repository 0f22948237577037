"""Which trials are trained together, before anything is trained."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

from shels.experiments.catalogue import CATALOGUE
from shels.experiments.methods import METHODS
from shels.experiments.preparing import alike_in_length, groups, training_key


@dataclass(eq=False)
class OfLength:
    n: int
    data: SimpleNamespace = field(init=False)

    def __post_init__(self):
        self.data = SimpleNamespace(training=SimpleNamespace(places=range(self.n)))


def trials(name, *methods, count=2):
    return [trial for method in methods for trial in CATALOGUE[name].trials(METHODS[method], count)]


def test_trainings_of_much_other_lengths_are_not_stacked_with_each_other():
    lengths = [60, 30, 31, 61, 44, 45, 46]
    parted = alike_in_length([OfLength(n) for n in lengths])
    assert [[each.n for each in portion] for portion in parted] == [[30, 31, 44, 45], [46, 60, 61]]
    assert alike_in_length([]) == []


def test_trainings_of_one_length_keep_their_order():
    made = [OfLength(9) for _ in range(4)]
    assert alike_in_length(made) == [made]


def test_a_sweep_over_sparsities_is_one_group_of_as_many_networks_as_points_and_trials():
    (group,) = groups(trials("group-sparsity/fmnist", "shels"))
    assert [len(shared) for shared in group] == [1] * 82
    assert len({training_key(shared[0]) for shared in group}) == 82


def test_the_same_settings_share_a_network_whichever_experiment_asks():
    asked = trials("within/fmnist", "shels", "shels-gaussian") + trials("exclusivity", "shels")
    (group,) = groups(asked)
    assert [[(each.experiment, each.method) for each in shared] for shared in group] == [
        [("within/fmnist", "shels"), ("within/fmnist", "shels-gaussian"), ("exclusivity", "shels")]
    ] * 2


def test_other_weights_of_exclusive_sparsity_or_cosines_are_not_mixed_into_a_stack():
    made = [trials("within/fmnist", name, count=1)[0] for name in ("scaled-cosine", "exclusive-sparsity")]
    changed = [
        replace(each, settings=replace(each.settings, training=replace(each.settings.training, alpha=0.5)))
        for each in made
    ]
    assert [len(group) for group in groups([*made, *changed])] == [1] * 4


def test_learners_that_begin_alike_share_their_network_with_each_other():
    (group,) = groups(trials("incremental/mnist", "penalty", "gaussian", count=1))
    assert [each.method for each in group[0]] == ["penalty", "gaussian"]

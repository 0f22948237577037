"""The default preset on few and on many images, to see whether a length in steps suits both.

    python benchmarks/default_sizes.py --data-dir DATA --sets mnist fmnist --sizes 600 3000 30000 --jobs 6

Five known classes (the authors' order 0), the given number of training images drawn from the seed.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from typing import Any


def run(case: tuple[str, int], data_dir: str) -> dict[str, Any]:
    """Train on that many images of a set and measure on its whole test part."""
    import torch  # noqa: PLC0415

    from shels.config.presets import preset  # noqa: PLC0415
    from shels.data.sources import load_named  # noqa: PLC0415
    from shels.data.splits import authors_split, split_data  # noqa: PLC0415
    from shels.learner.learner import learn  # noqa: PLC0415
    from shels.runtime import generator  # noqa: PLC0415

    name, size = case
    torch.set_num_threads(1)
    train, test, novel = split_data(load_named(name, data_dir), authors_split(0))
    chosen = torch.randperm(len(train), generator=generator(0, "some"))[:size]
    learner = learn(train.take(chosen), preset("default"), seed=0)
    measures = learner.evaluate(test, novel)
    steps = {"steps": learner.report["checks"][-1]["step"], "seconds": learner.report["seconds"]}
    return measures | steps | {"promised": learner.report["held_out_acceptance"]}


def main() -> None:
    """Run every case and print one line for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--sets", nargs="+", default=["mnist", "fmnist"])
    parser.add_argument("--sizes", nargs="+", type=int, default=[600, 3000, 30000])
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    cases = list(product(given.sets, given.sizes))
    shown = ("closed_set_accuracy", "acceptance", "promised", "novel_accuracy", "auroc", "steps", "seconds")
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
        for case, found in zip(cases, pool.map(run, cases, [given.data_dir] * len(cases)), strict=True):
            print(*case, "  ".join(f"{key} {found[key]:.4g}" for key in shown), flush=True)


if __name__ == "__main__":
    main()

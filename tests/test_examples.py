"""The examples in docstrings, run as they stand."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import shels

TRITON = {
    f"shels.kernels.{name}"
    for name in ("convolution", "head", "launching", "normalisation", "products", "sparsity", "steps")
}
"""Written in Triton, which CPU builds of torch come without."""
MODULES = [
    module.name
    for module in pkgutil.walk_packages(shels.__path__, "shels.")
    if module.name not in TRITON and not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0

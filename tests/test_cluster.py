"""Connecting to a cluster: its nodes, what is asked of each, and what is said where it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from shels.cluster import check_address, connected
from shels.errors import ClusterError, MissingExtraError, SettingsError
from tests.clusters import cluster_of


@pytest.fixture(scope="module")
def cluster():
    with cluster_of({"env_vars": {"SHELS_HERE": "first"}}, {"env_vars": {"SHELS_HERE": "second"}}) as (it, _):
        yield it


def name_of_node():
    return os.environ["SHELS_HERE"]


def refuse():
    raise ValueError("this node has nothing")


def test_each_worker_is_asked_once_and_the_head_without_cpus_is_none(cluster):
    with connected(cluster.address) as it:
        nodes = it.workers()
        assert len(nodes) == 2 < len(it.nodes())
        assert sorted(it.on_each(nodes, name_of_node).values()) == ["first", "second"]
        assert len({node.name for node in nodes}) == 2  # of one machine, and still told apart


def test_the_error_of_a_node_is_that_nodes_answer(cluster):
    with connected(cluster.address) as it:
        answers = it.on_each(it.workers(), refuse)
    assert [str(error) for error in answers.values()] == ["this node has nothing"] * 2
    assert all(isinstance(error, ValueError) for error in answers.values())


def test_a_process_that_is_connected_stays_so(cluster):
    import ray

    with connected(cluster.address):
        with connected("auto") as inner:
            assert inner.nodes()
        assert ray.is_initialized()
    assert not ray.is_initialized()


def test_an_address_at_which_nothing_listens_is_answered_at_once():
    with pytest.raises(ClusterError, match=r"no Ray listens at 127.0.0.1:1 .*ray start --head"):
        connected("127.0.0.1:1").__enter__()


@pytest.mark.parametrize("address", ["ray://head:10001", "http://head:8265/"])
def test_a_remote_address_is_answered_with_the_command_for_ray_jobs(address):
    with pytest.raises(SettingsError, match="ray job submit --address http://head:8265 -- shels"):
        check_address(address)


@pytest.mark.parametrize("address", ["", "head", "head:", ":6379", "head:0", "head:99999", "head:port"])
def test_an_address_that_is_none_is_refused_with_an_example(address):
    with pytest.raises(SettingsError, match=r"local, auto or a head's HOST:PORT, such as 10.0.0.1:6379"):
        check_address(address)


def test_without_ray_the_install_command_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"--cluster needs ray: pip install 'shels\[cluster\]'"):
        connected("local").__enter__()


def test_importing_the_module_imports_no_ray():
    code = "import sys, shels.cluster; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

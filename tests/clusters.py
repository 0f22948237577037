"""Clusters of several nodes on this machine, for tests: real ones, each node with processes of its own."""

from __future__ import annotations

from contextlib import contextmanager

STORE = 80 * 2**20
"""Bytes of shared memory of a node, near the least that Ray takes."""


@contextmanager
def cluster_of(*workers, head=None):
    """Start a head that takes no work and a node for each of `workers` (arguments of Ray's nodes).

    Yields Ray's `Cluster`, whose `address` commands take, and the nodes in this order.
    """
    from ray.cluster_utils import Cluster

    about = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=about | (head or {}))
    try:
        usual = {"num_cpus": 1, "object_store_memory": STORE}
        nodes = [cluster.add_node(**usual | each) for each in workers]
        yield cluster, nodes
    finally:
        cluster.shutdown()

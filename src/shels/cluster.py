"""A Ray cluster: started here, or joined where it runs; its nodes, and work on each of them.

Ray is imported by `connected` and by nothing else, so that a command without `--cluster` does without it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from shels.errors import ClusterError, MissingExtraError, SettingsError

Result = TypeVar("Result")

LOCAL, AUTO = "local", "auto"
"""Addresses that are words: a Ray of one's own on this machine; the one that this machine is a node of."""

_PATIENCE = 5.0  # seconds until an address that does not answer counts as wrong; Ray itself waits minutes
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Ray's own settings, where nobody has set them: it tells nobody of its use, and has no advice for people."""


@dataclass(frozen=True)
class Node:
    """A machine of a cluster. name: for people. cpus, gpus: what it lends to work."""

    id: str
    name: str
    cpus: float
    gpus: float


class Cluster:
    """A cluster that this process is connected to. ray: the package, for whoever sends work."""

    def __init__(self, ray: ModuleType) -> None:
        self.ray = ray

    def nodes(self) -> list[Node]:
        """List the nodes that are alive, in an order that lasts; two of one name get numbers."""
        found = sorted((each for each in self.ray.nodes() if each["Alive"]), key=lambda each: each["NodeID"])
        hosts = [each["NodeManagerHostname"] or each["NodeManagerAddress"] for each in found]
        nodes = []
        for each, host in zip(found, hosts, strict=True):
            name = host if hosts.count(host) == 1 else f"{host} ({each['NodeID'][:6]})"
            lent = each["Resources"]
            nodes.append(Node(each["NodeID"], name, lent.get("CPU", 0.0), lent.get("GPU", 0.0)))
        return nodes

    def workers(self) -> list[Node]:
        """List the nodes that work is sent to: those with GPUs where there are any, else those with CPUs."""
        nodes = self.nodes()
        return [node for node in nodes if node.gpus] or [node for node in nodes if node.cpus]

    def on_each(
        self, nodes: Sequence[Node], function: Callable[..., Result], *given: Any, patience: float = 120.0
    ) -> dict[Node, Result | Exception]:
        """Call a function once on each node, all at the same time, beside whatever runs there.

        Returns what it gave by node, or the error; a node that says nothing for `patience` seconds has one.
        """
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415

        task = self.ray.remote(function)
        asked = {}
        for node in nodes:
            there = NodeAffinitySchedulingStrategy(node.id, soft=False)
            asked[node] = task.options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote(*given)
        return {node: self._answer(answer, patience) for node, answer in asked.items()}

    def _answer(self, answer: Any, patience: float) -> Any:
        try:
            return self.ray.get(answer, timeout=patience)
        except self.ray.exceptions.RayTaskError as error:
            return getattr(error, "cause", error)
        except self.ray.exceptions.RayError as error:
            return error


@contextmanager
def connected(address: str, *, object_store: int | None = None) -> Iterator[Cluster]:
    """Connect to a cluster, and leave it at the end.

    address: "local" starts Ray on this machine for as long as this lasts; "auto" joins the cluster that this
    machine is a node of; "HOST:PORT" names the head of such a cluster. object_store: bytes of shared memory
    of a local one. A process that is connected already stays so.

    >>> with connected("ray://head:10001"):
    ...     pass
    Traceback (most recent call last):
    shels.errors.SettingsError: ray://head:10001 is Ray's client, which loses a run with its connection; ...
    """
    check_address(address)
    ray = _ray()
    if ray.is_initialized():
        yield Cluster(ray)
        return
    _require_listener(address)
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    _join(ray, address, object_store)
    try:
        yield Cluster(ray)
    finally:
        ray.shutdown()


def check_address(address: str) -> None:
    """Raise where an address is none that a driver can connect to, before anything is imported.

    >>> check_address("10.0.0.1:6379")
    """
    if address in (LOCAL, AUTO):
        return
    scheme, mark, rest = address.partition("://")
    if mark:
        what = (
            "Ray's client, which loses a run with its connection" if scheme == "ray" else "no head's address"
        )
        host = (rest if scheme == "ray" else rest.rstrip("/")).partition(":")[0] or "HEAD"
        raise SettingsError(
            f"{address} is {what}; send the command into the cluster instead: ray job submit --address "
            f"http://{host}:8265 -- shels … --cluster auto"
        )
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
        raise SettingsError(
            f"--cluster must be local, auto or a head's HOST:PORT, such as 10.0.0.1:6379, got {address!r}"
        )


def _ray() -> ModuleType:
    try:
        import ray  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError("ray", "cluster", "--cluster") from error
    return ray


def _require_listener(address: str) -> None:
    """Raise where nothing listens at a head's address; Ray would try for minutes."""
    named = os.environ.get("RAY_ADDRESS", AUTO) if address == AUTO else address
    if named in (LOCAL, AUTO):
        return
    check_address(named)
    host, _, port = named.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray listens at {named} ({error.strerror or error}); start a head there with "
            f"`ray start --head --port {port}`, or name the one that `ray status` knows"
        ) from error


def _join(ray: ModuleType, address: str, object_store: int | None) -> None:
    own = {"include_dashboard": False, "object_store_memory": object_store} if address == LOCAL else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
        raise ClusterError(_refusal(address, error)) from error


def _refusal(address: str, error: Exception) -> str:
    """Say why a cluster could not be joined, and what to do."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    if "ersion mismatch" in str(error):
        reason = " ".join(str(error).split())
        return f"the cluster at {address} has other versions ({reason}); install the same on all nodes"
    if address == AUTO and isinstance(error, ConnectionError):
        reason = "no Ray runs on this machine"
    if address == LOCAL:
        return f"Ray could not be started on this machine: {reason}"
    return (
        f"this machine could not join the cluster {address}: {reason}; the command must run on one of the "
        "cluster's nodes: `ray start --address HEAD:PORT` makes this machine one, and `ray job submit` sends "
        "the command to one"
    )

"""Figures for Prometheus: requests, latency, what was judged and called novel, alarms, versions, queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import Scope

if TYPE_CHECKING:
    from shels.service.batching import Batcher
    from shels.service.owner import Service

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Measures:
    """The figures of one application."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("route", "method", "status")
        self._requests = Counter("shels_requests_total", "Requests answered.", labels, registry=self.registry)
        self._seconds = Histogram(
            "shels_request_seconds", "Time to answer.", ("route",), buckets=_SECONDS, registry=self.registry
        )
        self._judged = Counter("shels_judged_total", "Samples judged.", registry=self.registry)
        self._novel = Counter("shels_novel_total", "Samples called novel.", registry=self.registry)
        self._gauges = {
            name: Gauge(f"shels_{name}", text, registry=self.registry)
            for name, text in {
                "novel_share": "Share called novel among the last samples observed.",
                "alarm_share": "Share from which that is an alarm.",
                "alarm": "1 while more is novel than chance explains.",
                "version": "Version of the model in use.",
                "classes": "Classes known.",
                "waiting_images": "Novel images that nobody has named.",
                "judging_queue": "Requests that wait to be judged.",
                "change_queue": "Changes that wait or are under way.",
                "accept_share": "Share of known samples that is to be accepted.",
            }.items()
        }

    def request(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request."""
        route = getattr(scope.get("route"), "path", "other")
        self._requests.labels(route, scope["method"], status).inc()
        self._seconds.labels(route).observe(seconds)

    def judged(self, count: int, novel: int) -> None:
        """Count samples that were judged."""
        self._judged.inc(count)
        self._novel.inc(novel)

    def page(self, service: Service, batcher: Batcher) -> bytes:
        """Write all figures as Prometheus reads them."""
        from shels.learner.rule import promised_share  # noqa: PLC0415

        recent = service.bench.intake.recent()
        values = {
            "novel_share": recent.share,
            "alarm_share": recent.threshold,
            "alarm": float(recent.alarm),
            "version": service.snapshot.version,
            "classes": len(service.snapshot.names),
            "waiting_images": len(service.bench.waiting()),
            "judging_queue": batcher.waiting,
            "change_queue": service.jobs.waiting,
            "accept_share": promised_share(service.learner) or 0.0,
        }
        for name, value in values.items():
            self._gauges[name].set(value)
        return generate_latest(self.registry)

"""What /metrics of the workers and /stats of the external API say while the demo runs."""

from __future__ import annotations

import http.client
import json
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Metrics:
    """One scrape: values by series, as `name{label="value"}`."""

    series: dict[str, float]

    @classmethod
    def parse(cls, text: str) -> Metrics:
        """Read the Prometheus text format, as far as our own metrics need it."""
        samples = (line.rpartition(" ") for line in text.splitlines() if line and line[0] != "#")
        return cls({series: float(value) for series, _, value in samples})

    def total(self, name: str, label: str = "") -> float:
        """The sum of a metric's series, or of those with `label`, such as `code="2xx"`; 0 where there is none."""
        return sum(
            value
            for series, value in self.series.items()
            if series.partition("{")[0] == name and label in series.partition("{")[2]
        )

    def quantile(self, share: float, name: str, label: str = "") -> float | None:
        """A quantile of a histogram in its own unit, interpolated within its bucket; None while it is empty."""
        buckets = sorted(
            (float(series.partition('le="')[2].partition('"')[0]), value)
            for series, value in self.series.items()
            if series.startswith(f"{name}_bucket{{") and label in series
        )
        if not buckets or buckets[-1][1] == 0:
            return None
        wanted = share * buckets[-1][1]
        for (low, below), (high, up_to) in pairwise([(0.0, 0.0), *buckets]):
            if up_to >= wanted:
                return low if high == float("inf") else low + (high - low) * (wanted - below) / max(up_to - below, 1.0)
        return None


@dataclass(frozen=True, slots=True)
class ApiStats:
    """The external API's own count.

    Attributes:
        first_request: Unix time; None before it.
        by_status: answers by HTTP status, or `reset`.
    """

    requests: int
    concurrency: int
    peak_concurrency: int
    first_request: float | None
    by_status: dict[str, int]

    @property
    def refusals(self) -> int:
        """Answers that were no order. One that broke off counts as an order here: the API does not see it."""
        return sum(count for status, count in self.by_status.items() if status != "200")


class Endpoint:
    """One HTTP server on this machine, asked over a connection that stays open."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_TIMEOUT)

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes | None:
        """The answer's body; None if there was no good answer."""
        try:
            self._connection.request(method, path, body)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return None
        return answer if response.status == http.HTTPStatus.OK else None

    def close(self) -> None:
        """Close the connection; the next question opens it anew."""
        with suppress(OSError):
            self._connection.close()


class WorkerGauges(Endpoint):
    """The workers' /metrics."""

    def scrape(self) -> Metrics | None:
        """What they count now; None while nobody answers."""
        text = self.ask("GET", "/metrics")
        return None if text is None else Metrics.parse(text.decode())


class ApiGauges(Endpoint):
    """The simulated API's control routes."""

    def stats(self) -> ApiStats | None:
        """What it counts now; None while nobody answers."""
        answer = self.ask("GET", "/stats?ids=0")
        if answer is None:
            return None
        said: dict[str, Any] = json.loads(answer)
        first = said["first_request"]
        return ApiStats(
            said["requests"],
            said["concurrency"],
            said["peak_concurrency"],
            None if first is None else float(first["unix"]),
            said["by_status"],
        )

    def behave(self, changes: dict[str, float]) -> None:
        """Change its behaviour from now on."""
        self.ask("PATCH", "/behaviour", json.dumps(changes).encode())

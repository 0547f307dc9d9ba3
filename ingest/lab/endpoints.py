"""Reads /metrics of the workers, and reads and sets the simulated external API while it runs."""

import http.client
import json
import ssl
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Metrics:
    """One scrape: values by series, as `name{label="value"}`."""

    series: dict[str, float]

    @classmethod
    def parse(cls, text: str) -> "Metrics":
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
    """The counters of the external API since its start or the last reset.

    Attributes:
        first_request: Unix time; None before it.
        by_status: answers by HTTP status, or `reset`.
        by_id: requests by order ID, where they were asked for.
    """

    requests: int
    concurrency: int
    peak_concurrency: int
    first_request: float | None
    by_status: dict[str, int]
    by_id: dict[str, int]

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """Read the answer to GET /stats."""
        said: dict[str, Any] = json.loads(body)
        first = said["first_request"]
        return cls(
            said["requests"],
            said["concurrency"],
            said["peak_concurrency"],
            None if first is None else float(first["unix"]),
            said["by_status"],
            said["by_id"],
        )

    @property
    def refusals(self) -> int:
        """Answers that were no order. One that broke off counts as an order here: the API does not see it."""
        return sum(count for status, count in self.by_status.items() if status != "200")


class Endpoint:
    """One HTTP server on this machine, asked over a connection that stays open.

    Args:
        url: of anything on it.
        ca_file: PEM file of the authority of its certificate; None for plain HTTP.
    """

    def __init__(self, url: str, ca_file: Path | None = None) -> None:
        address = urlsplit(url).netloc
        if ca_file is None:
            self._connection = http.client.HTTPConnection(address, timeout=_TIMEOUT)
        else:
            trusted = ssl.create_default_context(cafile=ca_file)
            self._connection = http.client.HTTPSConnection(address, timeout=_TIMEOUT, context=trusted)

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes | None:
        """The answer's body; None if there was no answer, or it was an error."""
        try:
            self._connection.request(method, path, body)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return None
        return answer if response.status in {http.HTTPStatus.OK, http.HTTPStatus.NO_CONTENT} else None

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        with suppress(OSError):
            self._connection.close()


class WorkerMetrics(Endpoint):
    """The workers' /metrics."""

    def scrape(self) -> Metrics | None:
        """Current counters, or None if the workers do not respond."""
        text = self.ask("GET", "/metrics")
        return None if text is None else Metrics.parse(text.decode())


class ApiControl(Endpoint):
    """The simulated API's control routes; every method returns None or False while it does not answer."""

    def stats(self) -> ApiStats | None:
        """Current counters, without the requests by order."""
        return self._stats("/stats?ids=0")

    def stats_by_id(self) -> ApiStats | None:
        """Current counters."""
        return self._stats("/stats")

    def behave(self, **changes: object) -> bool:
        """Change its behaviour from the next request on: the options of `ingest upstream`, with underscores."""
        return self.ask("PATCH", "/behaviour", json.dumps(changes).encode()) is not None

    def reset(self) -> bool:
        """Reset its counters."""
        return self.ask("DELETE", "/stats") is not None

    def _stats(self, path: str) -> ApiStats | None:
        answer = self.ask("GET", path)
        return None if answer is None else ApiStats.parse(answer)

"""Reads the workers' /metrics, and reads and controls the running simulated external API."""

import http.client
import json
import ssl
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ingest.lab.upstream.stats import StatsReport

_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class Metrics:
    """The values of one scrape by series, such as `name{label="value"}`."""

    series: dict[str, float]

    @classmethod
    def parse(cls, text: str) -> "Metrics":
        """Read the part of the Prometheus text format that our own metrics use."""
        samples = (line.rpartition(" ") for line in text.splitlines() if line and line[0] != "#")
        return cls({series: float(value) for series, _, value in samples})

    def total(self, name: str, label: str = "") -> float:
        """The sum of a metric's series, optionally only with `label`, such as `code="2xx"`, or 0 without series."""
        return sum(
            value
            for series, value in self.series.items()
            if series.partition("{")[0] == name and label in series.partition("{")[2]
        )

    def quantile(self, share: float, name: str, label: str = "") -> float | None:
        """A quantile of a histogram in the histogram's unit, interpolated within its bucket, or None without values."""
        counts = Counter[float]()
        for series, value in self.series.items():
            if series.startswith(f"{name}_bucket{{") and label in series:
                counts[float(series.partition('le="')[2].partition('"')[0])] += int(value)
        buckets = sorted(counts.items())
        if not buckets or buckets[-1][1] == 0:
            return None
        wanted = share * buckets[-1][1]
        for (low, below), (high, up_to) in pairwise([(0.0, 0.0), *buckets]):
            if up_to >= wanted:
                return low if high == float("inf") else low + (high - low) * (wanted - below) / max(up_to - below, 1.0)
        return None


class Endpoint:
    """A client of one HTTP server on this machine, with a persistent connection.

    Args:
        url: any URL of the server.
        ca_file: PEM file with the CA of the server's certificate, or None for plain HTTP.
    """

    def __init__(self, url: str, ca_file: Path | None = None) -> None:
        address = urlsplit(url).netloc
        if ca_file is None:
            self._connection = http.client.HTTPConnection(address, timeout=_TIMEOUT)
        else:
            trusted = ssl.create_default_context(cafile=ca_file)
            self._connection = http.client.HTTPSConnection(address, timeout=_TIMEOUT, context=trusted)

    def request(self, method: str, path: str, body: bytes | None = None) -> bytes | None:
        """Return the body of a successful response, or None if the request failed."""
        try:
            self._connection.request(method, path, body)
            response = self._connection.getresponse()
            received = response.read()
        except (OSError, http.client.HTTPException):
            self.close()
            return None
        return received if response.status in {http.HTTPStatus.OK, http.HTTPStatus.NO_CONTENT} else None

    def close(self) -> None:
        """Close the connection. The next request opens a new connection."""
        with suppress(OSError):
            self._connection.close()


class WorkerMetrics(Endpoint):
    """A client of the workers' /metrics."""

    def scrape(self) -> Metrics | None:
        """The current counters, or None if the workers do not respond."""
        text = self.request("GET", "/metrics")
        return None if text is None else Metrics.parse(text.decode())


class ApiControl(Endpoint):
    """A client of the simulated API's control routes. Its methods return None or False while the API is unavailable."""

    def stats(self) -> StatsReport | None:
        """The current counters, without the requests by order."""
        return self._stats("/stats?ids=0")

    def stats_by_id(self) -> StatsReport | None:
        """The current counters."""
        return self._stats("/stats")

    def behave(self, **changes: object) -> bool:
        """Change options of `ingest upstream`, written with underscores, from the next request on."""
        return self.request("PATCH", "/behaviour", json.dumps(changes).encode()) is not None

    def reset(self) -> bool:
        """Reset its counters."""
        return self.request("DELETE", "/stats") is not None

    def _stats(self, path: str) -> StatsReport | None:
        body = self.request("GET", path)
        return None if body is None else msgspec.json.decode(body, type=StatsReport)

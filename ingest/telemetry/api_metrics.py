"""The metrics of `ingest api`, which its processes count in shared memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ingest.domain.api_key import Denial
from ingest.domain.source_name import UNNAMED
from ingest.domain.webhook_result import WebhookResult
from ingest.telemetry.metrics import LOOP_LAG, RESTARTS
from ingest.telemetry.shared_metrics import Counter, Histogram, SharedMetrics, Spec

# Enqueueing an order takes a millisecond, a long NDJSON body takes seconds.
_REQUEST_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.5, 1.0, 2.5, 10.0)
# Every status of a response. Any other status is counted as `other`.
CODES = (
    "200", "202", "204", "304", "400", "401", "403", "404", "405", "408", "409", "410", "411", "413", "415", "417", "422",
    "429", "431", "500", "501", "503", "other",
)  # fmt: skip
# For unknown paths, and for requests that cannot be read.
NO_ROUTE = ("none", "none")
# The pages of the console are counted together.
CONSOLE = "/console/"


@dataclass(frozen=True, slots=True)
class ApiMetrics:
    """The metrics of one process of `ingest api`.

    Attributes:
        requests: by route and method, then by status.
        accepted: by source, then by origin.
        webhooks: by webhook and result.
        denied: requests that were not admitted, by reason.
        bodies_rejected: requests that were rejected or ended because memory for bodies was short, by reason.
    """

    requests: Mapping[tuple[str, str], Mapping[str, Histogram]]
    accepted: Mapping[str, Mapping[str, Counter]]
    webhooks: Mapping[tuple[str, str], Counter]
    denied: Mapping[str, Counter]
    bodies_rejected: Mapping[str, Counter]
    loop_lag: Histogram
    restarts: Counter


class ApiSeries:
    """The shared memory of all processes, and the series in it.

    Args:
        routes: by path and method.
        origins: the ways of an order into the queue.
        processes: the number of processes.
        webhooks: the source of each webhook.
        sources: the names of all sources.
    """

    def __init__(
        self,
        routes: Sequence[tuple[str, str]],
        origins: Sequence[str],
        processes: int,
        webhooks: Mapping[str, str] | None = None,
        sources: Sequence[str] = (UNNAMED,),
    ) -> None:
        self._routes = [*routes, NO_ROUTE]
        self.specs = (
            Spec(
                "ingest_api_request_seconds", "histogram", "Requests to the HTTP API, until the response is ready.",
                "route,method,code", tuple(f"{path},{method},{code}" for path, method in self._routes for code in CODES),
                _REQUEST_BOUNDS,
            ),
            Spec(
                "ingest_api_accepted_total", "counter", "Orders that the HTTP API has enqueued.", "origin",
                tuple(origins), by_source=True,
            ),
            Spec(
                "ingest_api_denied_total", "counter", "Requests to the HTTP API that were not admitted.", "reason",
                tuple(Denial),
            ),
            Spec(
                "ingest_api_bodies_rejected_total", "counter",
                "Requests rejected because memory for bodies was short. With slow, they were ended to free memory for others.",
                "reason", ("slow", "busy"),
            ),
            Spec(
                "ingest_webhooks_total", "counter", "Webhooks, by result.", "source,webhook,result",
                tuple(
                    f"{source},{webhook},{result}"
                    for webhook, source in (webhooks or {}).items() for result in WebhookResult
                ),
            ),
            LOOP_LAG,
            RESTARTS,
        )  # fmt: skip
        self.shared_metrics = SharedMetrics(self.specs, processes, sources)

    def of(self, slot: int) -> ApiMetrics:
        """Return the series of the process in `slot`."""
        requests, accepted, denied, bodies_rejected, webhooks, loop_lag, restarts = self.specs
        series = partial(self.shared_metrics.series, slot)
        by_status = series(requests)
        return ApiMetrics(
            requests={
                (path, method): {code: by_status[f"{path},{method},{code}"] for code in CODES}
                for path, method in self._routes
            },
            accepted={source: series(accepted, source) for source in self.shared_metrics.sources()},
            webhooks={tuple(labels.split(",")[1:]): counter for labels, counter in series(webhooks).items()},
            denied=series(denied),
            bodies_rejected=series(bodies_rejected),
            loop_lag=series(loop_lag),
            restarts=series(restarts),
        )

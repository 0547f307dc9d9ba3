"""The metrics of `ingest api`, which its processes count in shared memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingest.domain.api_key import Denial
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


@dataclass(frozen=True, slots=True)
class ApiMetrics:
    """The metrics of one process of `ingest api`.

    Attributes:
        requests: by route and method, then by status.
        accepted: by source.
        webhooks: by source and result.
        denied: requests that were not admitted, by reason.
        bodies_rejected: requests that were rejected because there was no memory for their bodies, by reason.
    """

    requests: Mapping[tuple[str, str], Mapping[str, Histogram]]
    accepted: Mapping[str, Counter]
    webhooks: Mapping[tuple[str, str], Counter]
    denied: Mapping[str, Counter]
    bodies_rejected: Mapping[str, Counter]
    loop_lag: Histogram
    restarts: Counter


class ApiSeries:
    """The shared memory of all processes, and the series in it. A route is its path and its method."""

    def __init__(
        self,
        routes: Sequence[tuple[str, str]],
        sources: Sequence[str],
        processes: int,
        webhooks: Sequence[str] = (),
    ) -> None:
        self._routes = [*routes, NO_ROUTE]
        self.specs = (
            Spec(
                "ingest_api_request_seconds", "histogram", "Requests to the HTTP API, until the response is ready.",
                "route,method,code", tuple(f"{path},{method},{code}" for path, method in self._routes for code in CODES),
                _REQUEST_BOUNDS, is_sparse=True,
            ),
            Spec(
                "ingest_api_accepted_total", "counter", "Orders that the HTTP API has enqueued.", "source",
                tuple(sources),
            ),
            Spec(
                "ingest_api_denied_total", "counter", "Requests to the HTTP API that were not admitted.", "reason",
                tuple(Denial),
            ),
            Spec(
                "ingest_api_bodies_rejected_total", "counter",
                "Requests rejected because there was no memory for their bodies: slow ones ended for others, busy ones refused.",
                "reason", ("slow", "busy"),
            ),
            Spec(
                "ingest_webhooks_total", "counter", "Webhooks, by source and result.", "source,result",
                tuple(f"{source},{result}" for source in webhooks for result in WebhookResult),
            ),
            LOOP_LAG,
            RESTARTS,
        )  # fmt: skip
        self.shared_metrics = SharedMetrics(self.specs, processes)

    def of(self, slot: int) -> ApiMetrics:
        """Return the series of the process in `slot`."""
        requests, accepted, denied, bodies_rejected, webhooks, loop_lag, restarts = (
            self.shared_metrics.series(slot, spec) for spec in self.specs
        )
        return ApiMetrics(
            requests={
                (path, method): {code: requests[f"{path},{method},{code}"] for code in CODES}
                for path, method in self._routes
            },
            accepted=accepted,
            webhooks={tuple(labels.split(",")): counter for labels, counter in webhooks.items()},
            denied=denied,
            bodies_rejected=bodies_rejected,
            loop_lag=loop_lag,
            restarts=restarts,
        )

"""The dashboard of the HTTP API, with its requests, responses, enqueued orders and processes."""

from frame import Section, by_source, choice, framed, several, sources
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.models import dashboard as models
from look import GOOD, WARN, Levels, Query, Words, graph, heat_map, logarithmic, number, stacked, timeline

_API = 'job=~"$job",instance=~"$instance"'
_REQUESTS = "ingest_api_request_seconds"
# The limit of the alert IngestApiErrors.
_ERRORS = Levels(warn=0.05)

_PER_SECOND = "suffix:/s"
_PER_MINUTE = "suffix:/min"
_SECONDS = "s"
_SHARE = "percentunit"
_COUNT = "short"

_FAILED = 'code=~"500|503"'
_DECLINED = 'code=~"400|401|403|404|405|408|409|411|413|415|417|422|429|431"'


def _rate(name: str, by: str = "", where: str = "") -> str:
    labels = f'{_API},source=~"$source"' if name == "ingest_api_accepted_total" else _API
    selected = f"{labels},{where}" if where else labels
    total = f"sum by ({by}) " if by else "sum"
    return f"{total}(rate({name}{{{selected}}}[$__rate_interval]))"


def _or_none(expr: str) -> str:
    """The expression, or 0 without a series, because a status gets a series with its first response."""
    return f"{expr} or vector(0)"


def _quantile(share: float, where: str = "", by: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, {_rate(f'{_REQUESTS}_bucket', labels, where)})"


def at_a_glance() -> Section:
    """The panels that show whether the API works."""
    return Section(
        "At a glance",
        [
            number(
                Words("Requests", "Requests per second, with any response.", _PER_SECOND),
                [Query(_rate(f"{_REQUESTS}_count"), "requests")],
                5,
                levels=Levels(),
            ),
            number(
                Words(
                    "Orders accepted",
                    "Orders per second that requests and webhooks have enqueued.",
                    _PER_SECOND,
                ),
                [Query(_rate("ingest_api_accepted_total"), "accepted")],
                5,
                levels=Levels(),
            ),
            number(
                Words(
                    "Failed requests",
                    "Share of the requests that received 500 or 503, because Redis or PostgreSQL cannot be used, or "
                    "because of a bug. The alert IngestApiErrors fires above 5 %.",
                    _SHARE,
                ),
                [
                    Query(
                        f"({_or_none(_rate(f'{_REQUESTS}_count', where=_FAILED))}) / clamp_min({_rate(f'{_REQUESTS}_count')}, 1e-9)",
                        "failed",
                    )
                ],
                5,
                levels=_ERRORS,
            ),
            number(
                Words(
                    "Duration (p99)",
                    "99 % of the requests take at most this time. The time to read a long NDJSON body is included.",
                    _SECONDS,
                ),
                [Query(_quantile(0.99), "p99")],
                5,
                levels=Levels(),
            ),
            number(
                Words("Containers", "`ingest api` commands that Prometheus can reach.", _COUNT),
                [Query(f"sum(up{{{_API}}})", "up")],
                4,
                levels=Levels(),
            ),
        ],
    )


def requests() -> Section:
    """Requests by response and route."""
    return Section(
        "Requests",
        [
            stacked(
                Words(
                    "Responses",
                    "Responses per second. succeeded: 2xx. declined: 4xx, so the client must change the request, or "
                    "send it again later in case of 429. failed: 500 and 503.",
                    _PER_SECOND,
                ),
                [
                    Query(_or_none(_rate(f"{_REQUESTS}_count", where='code=~"200|202|204|304"')), "succeeded"),
                    Query(_or_none(_rate(f"{_REQUESTS}_count", where=_DECLINED)), "declined"),
                    Query(_or_none(_rate(f"{_REQUESTS}_count", where=_FAILED)), "failed"),
                ],
                8,
            ),
            graph(
                Words("Requests by route", "Requests per second. `none` are paths that do not exist.", _PER_SECOND),
                [Query(_rate(f"{_REQUESTS}_count", "method, route"), "{{method}} {{route}}")],
                8,
            ),
            logarithmic(
                Words("Duration by route (p99)", "Time until the response is ready, on a logarithmic scale.", _SECONDS),
                [Query(_quantile(0.99, by="method, route"), "{{method}} {{route}}")],
                8,
            ),
            heat_map(
                Words(
                    "Duration of requests",
                    "Number of requests by duration. A second band above the first is a slow route, or a Redis that "
                    "writes to disk before it responds.",
                    _SECONDS,
                ),
                _rate(f"{_REQUESTS}_bucket", "le"),
                12,
                cell_unit=_PER_SECOND,
            ),
            graph(
                Words(
                    "Declined requests by status",
                    "Requests per minute. 401 and 403: keys. 422: invalid orders. 429: the backlog is at its limit, or "
                    "a key exceeds its rate. 413, 415: bodies that are not accepted.",
                    _PER_MINUTE,
                ),
                [Query("60 * " + _rate(f"{_REQUESTS}_count", "code", _DECLINED), "{{code}}")],
                12,
            ),
        ],
    )


def announcements() -> Section:
    """The enqueued orders."""
    return Section(
        "Announcements",
        [
            stacked(
                Words(
                    "Accepted orders by origin",
                    "Orders per second that requests (`api`) and webhooks (`webhook`) have enqueued.",
                    _PER_SECOND,
                ),
                [Query(_rate("ingest_api_accepted_total", "origin"), "{{origin}}")],
                12,
            ),
            stacked(
                Words(
                    "Accepted orders by source",
                    "Orders per second that were enqueued for each source.",
                    _PER_SECOND,
                ),
                [Query(by_source(_rate("ingest_api_accepted_total", "source")), "{{source}}")],
                12,
            ),
        ],
    )


def processes() -> Section:
    """The processes of the API."""
    return Section(
        "Processes",
        [
            graph(
                Words(
                    "Lag of the event loop (p99)",
                    "Delay with which the event loop of a process runs due callbacks. Above about 100 ms, the processes "
                    "lack CPU time. Raise INGEST_API_PROCESSES, or run more containers.",
                    _SECONDS,
                ),
                [
                    Query(
                        f"histogram_quantile(0.99, {_rate('ingest_event_loop_lag_seconds_bucket', 'instance, le')})",
                        "{{instance}}",
                    )
                ],
                8,
            ),
            graph(
                Words("Restarts within 15 minutes", "Processes that died and were restarted.", _COUNT),
                [
                    Query(
                        f"round(sum by (instance) (increase(ingest_process_restarts_total{{{_API}}}[15m])))",
                        "{{instance}}",
                    )
                ],
                8,
            ),
            timeline(
                Words(
                    "Reachable by Prometheus",
                    "Down means that the API hangs, has stopped, or cannot be reached.",
                    _COUNT,
                ),
                Query(f"up{{{_API}}}", "{{instance}}"),
                8,
                states={0: ("down", WARN), 1: ("up", GOOD)},
            ).height(8),
        ],
    )


SECTIONS = (at_a_glance, requests, announcements, processes)


def http_api() -> models.Dashboard:
    """The whole dashboard."""
    dashboard = (
        Dashboard("Order ingestion: HTTP API")
        .uid("ingest-http-api")
        .description("Requests that announce orders, ask for them and manage them, and how they were answered.")
    )
    return framed(
        dashboard,
        [
            several(choice("job", "Job", f"{_REQUESTS}_count", "job")),
            sources('ingest_api_accepted_total{job=~"$job"}'),
            several(choice("instance", "API", 'up{job=~"$job"}', "instance")),
        ],
        SECTIONS,
        'source=~"$source|",job=~"$job|",instance=~"$instance|"',
    )

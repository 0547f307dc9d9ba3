"""What the dashboard shows, in the order of an order's way.

What is true of the queue as a whole is the same on every worker, hence `max`; what workers count is added up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from look import (
    BAD,
    GOOD,
    WARN,
    Levels,
    Panel,
    Query,
    Words,
    bars,
    dashed,
    graph,
    heat_map,
    in_words,
    logarithmic,
    number,
    stacked,
    timeline,
    with_levels,
)

# What every query is restricted to: the queue, and the workers chosen above the panels.
_QUEUE = 'stream="$stream",job=~"$job"'
_WORKERS = 'job=~"$job",instance=~"$instance"'

# As deploy/prometheus/rules/alerts.yml: orange where it warns, red where it is critical.
_OLDEST = Levels(warn=900, bad=3600)
_RESTARTS = Levels(warn=3)
_ANY_IS_A_WARNING = Levels(warn=1)
_NONE_IS_BAD = {0: BAD, 1: GOOD}

_OUTCOMES = ("stored", "unchanged", "erased", "retried", "dead")
_CODES = ("2xx", "4xx", "429", "5xx", "timeout", "error")
_REASONS = ("idle", "dead_consumer", "restart")

_PER_SECOND = "suffix:/s"
_PER_MINUTE = "suffix:/min"
_SECONDS = "s"
_COUNT = "short"


@dataclass(frozen=True, slots=True)
class Section:
    """Panels under a heading; together they fill lines of 24 columns."""

    title: str
    panels: Sequence[Panel]


def _gauge(name: str) -> str:
    return f"max by (stream) ({name}{{{_QUEUE}}})"


def _rate(name: str, by: str = "", where: str = "") -> str:
    selected = f"{_WORKERS},{where}" if where else _WORKERS
    total = f"sum by ({by}) " if by else "sum"
    return f"{total}(rate({name}{{{selected}}}[$__rate_interval]))"


def _quantile(share: float, histogram: str, *, by: str = "", where: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, {_rate(f'{histogram}_bucket', labels, where)})"


def _quantiles(histogram: str, where: str = "") -> list[Query]:
    return [Query(_quantile(share, histogram, where=where), f"p{share * 100:.0f}") for share in (0.5, 0.95, 0.99)]


def at_a_glance() -> Section:
    """Whether all is well."""
    return Section(
        "At a glance",
        [
            number(
                Words(
                    "Oldest unfinished order",
                    "How long the order that has waited longest has been in the queue; 0 when all are done. The one number to "
                    "watch: it stays low however much comes in, as long as the workers keep up. Without data, Redis is away.",
                    _SECONDS,
                ),
                [Query(_gauge("ingest_queue_oldest_age_seconds"), "oldest")],
                4,
                levels=_OLDEST,
            ),
            number(
                Words(
                    "Waiting",
                    "Orders that no worker has been given yet. Many are no trouble in themselves: ten thousand may be one "
                    "second's import. See the oldest one's age beside it.",
                    _COUNT,
                ),
                [Query(_gauge("ingest_queue_depth"), "waiting")],
                4,
                levels=Levels(),
            ),
            number(
                Words(
                    "Stored per second",
                    "Orders stored by the chosen workers. At 0 with orders waiting nothing moves: look at the circuit, then at "
                    "the logs.",
                    _PER_SECOND,
                ),
                [Query(_rate("ingest_orders_total", where='outcome="stored"'), "stored")],
                4,
                levels=Levels(),
            ),
            number(
                Words(
                    "Dead letters",
                    "Orders that no retry can help, kept until a person has looked: `ingest dead list` tells why each is there, "
                    "`ingest dead replay` puts them back, `ingest dead drop` removes them.",
                    _COUNT,
                ),
                [Query(_gauge("ingest_dead_letters"), "dead")],
                4,
                levels=_ANY_IS_A_WARNING,
            ),
            with_levels(
                number(
                    Words(
                        "Workers",
                        "`ingest worker` commands that answer to Prometheus, and those that do not: they hang, have stopped, or "
                        "cannot be reached.",
                        _COUNT,
                    ),
                    [
                        Query(f"sum(up{{{_WORKERS}}})", "up"),
                        Query(f"count(up{{{_WORKERS}}}) - sum(up{{{_WORKERS}}})", "down"),
                    ],
                    4,
                    levels=Levels(),
                ),
                {"down": _ANY_IS_A_WARNING},
            ),
            in_words(
                number(
                    Words(
                        "Circuit to the external API",
                        "Open: a worker process takes the external API to be away, reads nothing, and sends one probe every few "
                        "seconds. No order is lost or counted as failed; all goes on by itself when the API answers. A refused "
                        "credential (401, 403) opens it as well, and needs a person.",
                        _COUNT,
                    ),
                    [Query(f"sum(ingest_circuit_open{{{_WORKERS}}})", "open")],
                    4,
                    levels=_ANY_IS_A_WARNING,
                ),
                {0: ("closed", GOOD), 1: ("open", WARN)},
            ),
        ],
    )


def queue() -> Section:
    """What waits."""
    return Section(
        "Queue",
        [
            graph(
                Words(
                    "Age of the oldest unfinished order",
                    "A line that climbs one second per second: nothing moves, or a single order is stuck. One that climbs more "
                    "slowly: more comes in than the workers finish; add workers, if the external API permits more requests. The "
                    "dashed lines are where the alert IngestQueueOld warns, and where it is critical.",
                    _SECONDS,
                ),
                [Query(_gauge("ingest_queue_oldest_age_seconds"), "oldest")],
                9,
                levels=_OLDEST,
            ),
            stacked(
                Words(
                    "Unfinished orders",
                    "Waiting: not given to a worker yet. In work: given to one, and not stored yet. To be retried: failed, and "
                    "due again later, within five minutes at most. Mostly orders to be retried: look at the external API below.",
                    _COUNT,
                ),
                [
                    Query(_gauge("ingest_queue_pending"), "in work"),
                    Query(_gauge("ingest_queue_depth"), "waiting"),
                    Query(_gauge("ingest_retries_scheduled"), "to be retried"),
                ],
                9,
            ),
            graph(
                Words(
                    "Consumers of the group",
                    "Worker processes that Redis knows: INGEST_PROCESSES for each worker. More than that: processes that died "
                    "and still hold orders, which others take over within seconds. 0: nobody reads the queue.",
                    _COUNT,
                ),
                [Query(_gauge("ingest_queue_consumers"), "consumers")],
                6,
            ),
        ],
    )


def external_api() -> Section:
    """What is asked of the external API, and how it answers."""
    return Section(
        "External API",
        [
            stacked(
                Words(
                    "Requests by answer",
                    "Requests per second, quick retries included. 4xx: orders that the API does not know or refuses, which become dead "
                    "letters; or a refused credential (401, 403), which opens the circuit. 429: it asks to wait, and the workers do. "
                    "5xx, timeout (no answer in time) and error (no connection): the API's trouble; the orders are tried again.",
                    _PER_SECOND,
                ),
                [Query(_rate("ingest_upstream_request_seconds_count", "code"), "{{code}}")],
                8,
                parts=_CODES,
            ),
            logarithmic(
                Words(
                    "Time of a request",
                    "Requests that brought an order, until all of it is there; a scale of powers of ten. It bounds what the workers can "
                    "do: orders per second are orders in flight divided by it.",
                    _SECONDS,
                ),
                _quantiles("ingest_upstream_request_seconds", 'code="2xx"'),
                8,
            ),
            dashed(
                graph(
                    Words(
                        "Orders in flight",
                        "Orders being fetched, and how many may be: INGEST_CONCURRENCY for each process of each worker. Constantly "
                        "at the limit with orders waiting: the limit is what holds them up. The limit sinks when the API answers "
                        "with 429, and grows again by itself.",
                        _COUNT,
                    ),
                    [
                        Query(f"sum(ingest_in_flight{{{_WORKERS}}})", "in flight"),
                        Query(f"sum(ingest_concurrency_limit{{{_WORKERS}}})", "limit"),
                    ],
                    8,
                ),
                "limit",
            ),
            timeline(
                Words(
                    "Circuit, by worker",
                    "Open while processes of that worker take the external API to be away and leave it in peace. One worker alone: "
                    "its host cannot reach the API. All of them: the API is away, or refuses the credential.",
                    _COUNT,
                ),
                Query(f"max by (instance) (ingest_circuit_open{{{_WORKERS}}})", "{{instance}}"),
                24,
                states={0: ("closed", GOOD), 1: ("open", WARN)},
            ),
        ],
    )


def postgresql() -> Section:
    """How orders are stored."""
    return Section(
        "PostgreSQL",
        [
            logarithmic(
                Words(
                    "Time of a batch",
                    "One transaction that stores a batch of orders; a scale of powers of ten. When it grows with batches of the same "
                    "size, the database is what is slow: locks, disk, too many connections. While PostgreSQL is away, workers hold "
                    "their batches and wait.",
                    _SECONDS,
                ),
                _quantiles("ingest_store_seconds"),
                12,
            ),
            graph(
                Words(
                    "Orders per batch",
                    "Orders that finish together are stored together: single ones when little is to do, up to INGEST_BATCH_ROWS with "
                    "a backlog. Constantly at that number: PostgreSQL is the slowest part.",
                    _COUNT,
                ),
                [
                    Query(
                        f"{_rate('ingest_store_batch_rows_sum')} / {_rate('ingest_store_batch_rows_count')}",
                        "mean",
                    ),
                    Query(_quantile(0.99, "ingest_store_batch_rows"), "p99"),
                ],
                12,
            ),
        ],
    )


def outcomes() -> Section:
    """What became of the orders, and how long it took."""
    return Section(
        "Outcomes",
        [
            stacked(
                Words(
                    "Orders by outcome",
                    "Orders per second. Stored: a new or newer version is in the table. Unchanged: announced again, and the same. "
                    "Erased: was erased before, and stays so. Retried: will be tried again. Dead: a dead letter.",
                    _PER_SECOND,
                ),
                [Query(_rate("ingest_orders_total", "outcome"), "{{outcome}}")],
                8,
                parts=_OUTCOMES,
            ),
            logarithmic(
                Words(
                    "From enqueue to commit",
                    "How long orders were on their way, all retries included; a scale of powers of ten. p95: of 20 orders, 19 were "
                    "quicker. Near the time of one request there is nothing to gain; above it, orders wait.",
                    _SECONDS,
                ),
                _quantiles("ingest_order_latency_seconds"),
                8,
            ),
            heat_map(
                Words(
                    "From enqueue to commit, all orders",
                    "The stronger the colour, the more orders took so long. One band is healthy; a second one above it are orders that were "
                    "retried, a band that rises is a backlog.",
                    _SECONDS,
                ),
                _rate("ingest_order_latency_seconds_bucket", "le"),
                8,
                cell_unit=_PER_SECOND,
            ),
        ],
    )


def trouble() -> Section:
    """What went wrong."""
    return Section(
        "Trouble",
        [
            bars(
                Words(
                    "Deliveries taken over",
                    "Per minute. idle: what was given back, as when the circuit opens or a worker stops, and what nobody had renewed "
                    "for INGEST_CLAIM_IDLE. restart: what a process left behind that died and was started again. dead_consumer: what "
                    "a process left behind that stayed dead, or was frozen. None is lost; the last two, again and again: look for what "
                    "kills the processes.",
                    _PER_MINUTE,
                ),
                [Query("60 * " + _rate("ingest_redeliveries_total", "reason"), "{{reason}}")],
                8,
                parts=_REASONS,
            ),
            bars(
                Words(
                    "To be tried again",
                    "Orders per minute that went into the retry set. Together with 429 above: the API throttles, which is no failure. With "
                    "5xx, timeout or error: the API is in trouble.",
                    _PER_MINUTE,
                ),
                [Query("60 * " + _rate("ingest_orders_total", where='outcome="retried"'), "retried")],
                8,
            ),
            bars(
                Words(
                    "New dead letters",
                    "Orders per minute that no retry can help: the alert IngestDeadLetters warns of any. `ingest dead list` tells why. "
                    "A few are wrong IDs as a rule; many at once, a change of the API or of its data.",
                    _PER_MINUTE,
                ),
                [Query("60 * " + _rate("ingest_orders_total", where='outcome="dead"'), "dead")],
                8,
            ),
            graph(
                Words(
                    "Restarts within 15 minutes",
                    "Worker processes that died and were started again, and worker commands that began anew. One is taken care of; "
                    "from three on the alert IngestProcessesRestart warns: see the logs, and whether memory ran out.",
                    _COUNT,
                ),
                # An increase is an estimate: 1.01 for one.
                [Query(f"round(job_instance:ingest_restarts:increase15m{{{_WORKERS}}})", "{{instance}}")],
                12,
                levels=_RESTARTS,
            ),
            graph(
                Words(
                    "Lag of the event loop (p99)",
                    "How late a worker's event loop runs what is due. Above some 100 ms the processes have too little CPU, or something "
                    "blocks them: `event_loop_blocked` in the log shows where.",
                    _SECONDS,
                ),
                [Query(_quantile(0.99, "ingest_event_loop_lag_seconds", by="instance"), "{{instance}}")],
                12,
            ),
        ],
    )


def single_workers() -> Section:
    """Whether one worker differs from the others."""
    return Section(
        "Workers",
        [
            graph(
                Words(
                    "Stored, by worker",
                    "Orders per second. Workers share what there is: with a backlog, equal ones do equally much. One that does much "
                    "less has a slow host or network.",
                    _PER_SECOND,
                ),
                [Query(_rate("ingest_orders_total", "instance", 'outcome="stored"'), "{{instance}}")],
                12,
            ),
            timeline(
                Words(
                    "Answers to Prometheus, by worker",
                    "Down: the worker hangs, has stopped, or cannot be reached. A line that ends: Prometheus no longer knows of that "
                    "worker, as after scaling down.",
                    _COUNT,
                ),
                Query(f"up{{{_WORKERS}}}", "{{instance}}"),
                12,
                states={0: ("down", WARN), 1: ("up", GOOD)},
            ).height(8),
        ],
    )


SECTIONS = (at_a_glance, queue, external_api, postgresql, outcomes, trouble, single_workers)

"""The panels of the dashboard, from the queue to the workers.

Every worker exports the same gauges of a queue, so the queries use `max`. They add up the counters of workers and the queues of sources.
"""

from frame import Section, by_source
from look import (
    GOOD,
    WARN,
    Levels,
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

# Every query selects the sources, the workers, or both, that are chosen above the panels.
_QUEUE = 'job=~"$job",source=~"$source"'
_PROCESSES = 'job=~"$job",instance=~"$instance"'
_WORKERS = f'{_PROCESSES},source=~"$source"'

# The limits of deploy/prometheus/rules/alerts.yml, orange for a warning, and red for critical.
_OLDEST = Levels(warn=900, bad=3600)
_RESTARTS = Levels(warn=3)
_ANY_IS_A_WARNING = Levels(warn=1)

_OUTCOMES = ("stored", "unchanged", "erased", "skipped", "retried", "dead")
_CODES = ("2xx", "3xx", "4xx", "429", "5xx", "timeout", "error")
_REASONS = ("idle", "dead_consumer", "restart")
_LANES = ("main", "express")
_REQUESTS = "ingest_upstream_request_seconds_count"
_FAILED = 'code=~"5xx|timeout|error|429"'

# All sources of a process share these.
_OF_PROCESSES = ("ingest_event_loop_", "ingest_process_", "ingest_store_")

_PER_SECOND = "suffix:/s"
_PER_MINUTE = "suffix:/min"
_SECONDS = "s"
_COUNT = "short"
_SHARE = "percentunit"


def _gauge(name: str, by: str = "") -> str:
    """The sum over the chosen sources. Every worker shows the same value of a source."""
    each = f"max by ({by}, job, stream)" if by else "max by (job, stream)"
    total = f"sum by ({by}) " if by else "sum"
    return f"{total}({each} ({name}{{{_QUEUE}}}))"


def _each(name: str, by: str) -> str:
    return f"max by ({by}) ({name}{{{_QUEUE}}})"


def _of_partitions(name: str) -> str:
    return f"max by (source, partition) ({name}{{{_WORKERS}}})"


def _rate(name: str, by: str = "", where: str = "") -> str:
    labels = _PROCESSES if name.startswith(_OF_PROCESSES) else _WORKERS
    selected = f"{labels},{where}" if where else labels
    total = f"sum by ({by}) " if by else "sum"
    return f"{total}(rate({name}{{{selected}}}[$__rate_interval]))"


def _quantile(share: float, histogram: str, *, by: str = "", where: str = "") -> str:
    labels = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, {_rate(f'{histogram}_bucket', labels, where)})"


def _quantiles(histogram: str, where: str = "") -> list[Query]:
    return [Query(_quantile(share, histogram, where=where), f"p{share * 100:.0f}") for share in (0.5, 0.95, 0.99)]


def at_a_glance() -> Section:
    """The panels that show whether the service works."""
    return Section(
        "At a glance",
        [
            number(
                Words(
                    "Oldest unfinished order",
                    "Time since the oldest unfinished order was first enqueued, including retries. This is the most "
                    "important number, because it stays low under any load while workers keep up. Without data, Redis "
                    "is unavailable.",
                    _SECONDS,
                ),
                [Query(f"max(ingest_queue_oldest_age_seconds{{{_QUEUE}}})", "oldest")],
                4,
                levels=_OLDEST,
            ),
            number(
                Words(
                    "Waiting",
                    "Orders in both lanes that were not yet delivered to a worker. A high number is no problem by "
                    "itself, because ten thousand orders may be the import of one second. Look at the age of the oldest "
                    "order.",
                    _COUNT,
                ),
                [Query(_gauge("ingest_queue_depth"), "waiting")],
                4,
                levels=Levels(),
            ),
            number(
                Words(
                    "Stored per second",
                    "Orders that the selected workers have stored. If this is 0 while orders wait, look at the circuit "
                    "first, then at the logs.",
                    _PER_SECOND,
                ),
                [Query(_rate("ingest_orders_total", where='outcome="stored"'), "stored")],
                4,
                levels=Levels(),
            ),
            number(
                Words(
                    "Dead letters",
                    "Orders that failed permanently and need an operator. `ingest dead list` shows the reasons, `ingest "
                    "dead replay` returns them to the queue, and `ingest dead drop` deletes them.",
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
                        "`ingest worker` commands that Prometheus can reach (up) or cannot reach (down). A worker that "
                        "is down hangs, has stopped, or is disconnected.",
                        _COUNT,
                    ),
                    [
                        Query(f"count(ingest_ready{{{_PROCESSES}}}) or vector(0)", "up"),
                        Query(f"count(up{{{_PROCESSES}}}) - sum(up{{{_PROCESSES}}})", "down"),
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
                        "Open while a worker process finds the external API unavailable. The process stops reading and "
                        "sends a test request every few seconds. No order is lost, and no attempt counts. Work "
                        "continues by itself, except after a rejected credential (401, 403), which needs an operator.",
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
    """The queues of the chosen sources, in total and by lane."""
    return Section(
        "Queues",
        [
            graph(
                Words(
                    "Age of the oldest unfinished order",
                    "One line for the queue of each source. If a line climbs by one second per second, no order is "
                    "being stored, or a single order is stuck. If it climbs more slowly, more orders arrive than are "
                    "stored. Add workers if the external API permits more requests. The dashed lines are the limits of "
                    "the alert IngestQueueOld.",
                    _SECONDS,
                ),
                [Query(_each("ingest_queue_oldest_age_seconds", "stream"), "{{stream}}")],
                9,
                levels=_OLDEST,
            ),
            stacked(
                Words(
                    "Unfinished orders",
                    "Waiting orders are not yet delivered to a worker. Pending orders are delivered and not yet stored. "
                    "Orders to be retried have failed and are due again, usually within five minutes. If most orders "
                    "are to be retried, look at the external API below.",
                    _COUNT,
                ),
                [
                    Query(_gauge("ingest_queue_pending"), "pending"),
                    Query(_gauge("ingest_queue_depth"), "waiting"),
                    Query(_gauge("ingest_retries_scheduled"), "to be retried"),
                ],
                9,
            ),
            graph(
                Words(
                    "Consumers of the group",
                    "Worker processes in the consumer group of each queue, INGEST_PROCESSES for each worker. Additional "
                    "consumers are processes that died and still hold orders, which others reclaim within seconds. At "
                    "0, no worker reads the queue.",
                    _COUNT,
                ),
                [Query(_each("ingest_queue_consumers", "stream"), "{{stream}}")],
                6,
            ),
            stacked(
                Words(
                    "Waiting orders by lane",
                    "Workers read the express lane first. It contains due retries, replayed dead letters and urgent "
                    "orders. The main lane always keeps a share, so neither lane stops the other.",
                    _COUNT,
                ),
                [Query(_gauge("ingest_queue_lane_depth", "lane"), "{{lane}}")],
                12,
                parts=_LANES,
            ),
            stacked(
                Words(
                    "Pending orders by lane",
                    "Orders that were delivered to a worker and are not yet stored. If the express lane dominates for a "
                    "long time, retries or a replay take the place of new orders.",
                    _COUNT,
                ),
                [Query(_gauge("ingest_queue_lane_pending", "lane"), "{{lane}}")],
                6,
                parts=_LANES,
            ),
            graph(
                Words(
                    "Oldest order by lane",
                    "Time since the oldest order in each lane was first enqueued. In the express lane, it includes the "
                    "earlier attempts of the order, so it may start above 0.",
                    _SECONDS,
                ),
                [Query(_each("ingest_queue_lane_oldest_age_seconds", "lane"), "{{lane}}")],
                6,
            ),
            graph(
                Words(
                    "Waiting orders by partition",
                    "Orders that were not yet delivered to a worker, for each partition of a queue. A partition whose "
                    "line never falls while others do makes no progress. Without data, no queue uses several "
                    "partitions.",
                    _COUNT,
                ),
                [Query(_of_partitions("ingest_partition_depth"), "{{source}} {{partition}}")],
                12,
            ),
            graph(
                Words(
                    "Oldest order by partition",
                    "Time since the oldest unfinished order of each partition was first enqueued, including retries. "
                    "Without data, no queue uses several partitions.",
                    _SECONDS,
                ),
                [Query(_of_partitions("ingest_partition_oldest_age_seconds"), "{{source}} {{partition}}")],
                12,
            ),
        ],
    )


def each_source() -> Section:
    """Each source, to find the source with a problem."""
    return Section(
        "Sources",
        [
            graph(
                Words(
                    "Stored, by source",
                    "Orders of each source that were stored per second.",
                    _PER_SECOND,
                ),
                [Query(by_source(_rate("ingest_orders_total", "source", 'outcome="stored"')), "{{source}}")],
                8,
            ),
            graph(
                Words(
                    "Dead letters, by source",
                    "Dead letters in the queue of each source. If a number grows, run `ingest dead list --source NAME`.",
                    _COUNT,
                ),
                [Query(_each("ingest_dead_letters", "stream"), "{{stream}}")],
                8,
            ),
            graph(
                Words(
                    "Failed requests, by source",
                    "Share of the requests to each external API that fail or are throttled (5xx, timeout, error and "
                    "429). Without data, no requests are sent.",
                    _SHARE,
                ),
                [
                    Query(
                        by_source(
                            f"({_rate(_REQUESTS, 'source', _FAILED)} or 0 * {_rate(_REQUESTS, 'source')}) / ({_rate(_REQUESTS, 'source')} > 0)",
                        ),
                        "{{source}}",
                    )
                ],
                8,
            ),
            graph(
                Words(
                    "Polling behind, by source",
                    "Time since the list of orders was read completely. It grows until the next reading, then returns "
                    "to zero. Without polling, it stays at 0.",
                    _SECONDS,
                ),
                [Query(by_source(f"max by (source) (ingest_source_lag_seconds{{{_WORKERS}}})"), "{{source}}")],
                24,
            ),
            timeline(
                Words(
                    "Circuit, by source",
                    "Open while worker processes find the external API of the source unavailable. The other sources "
                    "continue.",
                    _COUNT,
                ),
                Query(by_source(f"max by (source) (ingest_circuit_open{{{_WORKERS}}})"), "{{source}}"),
                24,
                states={0: ("closed", GOOD), 1: ("open", WARN)},
            ),
            timeline(
                Words(
                    "Paused, by source",
                    "Paused by an operator. No request to the external API begins, and orders wait in the queue. "
                    "`ingest status` shows the reason, and `ingest resume --source NAME` ends the pause.",
                    _COUNT,
                ),
                Query(by_source(f"max by (source) (ingest_paused{{{_WORKERS}}})"), "{{source}}"),
                24,
                states={0: ("running", GOOD), 1: ("paused", WARN)},
            ),
        ],
    )


def external_api() -> Section:
    """Requests to the external API, and its responses."""
    return Section(
        "External API",
        [
            stacked(
                Words(
                    "Requests by response",
                    "Requests per second, including quick retries. 3xx are redirects. 4xx are orders that the API does "
                    "not know or rejects, which become dead letters. 401 and 403 are rejected credentials, which open "
                    "the circuit. With 429, the API throttles and workers wait. 5xx, timeout (no response in time) and "
                    "error (no connection) are failures of the API, and the orders are retried.",
                    _PER_SECOND,
                ),
                [Query(_rate("ingest_upstream_request_seconds_count", "code"), "{{code}}")],
                8,
                parts=_CODES,
            ),
            logarithmic(
                Words(
                    "Duration of a request",
                    "Successful requests, until the whole response has arrived, on a logarithmic scale. It limits "
                    "throughput, because orders per second are orders in flight divided by this duration.",
                    _SECONDS,
                ),
                _quantiles("ingest_upstream_request_seconds", 'code="2xx"'),
                8,
            ),
            dashed(
                graph(
                    Words(
                        "Orders in flight",
                        "Orders that are being fetched, and their limit, which is INGEST_CONCURRENCY for each process. "
                        "If they stay at the limit while orders wait, raise the limit if the API permits it. The limit "
                        "falls when the API responds with 429, and rises again by itself.",
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
                    "Open while processes of that worker find the external API unavailable and send only test requests. "
                    "If only one worker is affected, its host cannot reach the API. If all are affected, the API is "
                    "unavailable or rejects the credential.",
                    _COUNT,
                ),
                Query(f"max by (instance) (ingest_circuit_open{{{_WORKERS}}})", "{{instance}}"),
                24,
                states={0: ("closed", GOOD), 1: ("open", WARN)},
            ),
            logarithmic(
                Words(
                    "Wait for the quota",
                    "Time that requests waited for the quota that all processes share (INGEST_UPSTREAM_RATE, "
                    "INGEST_UPSTREAM_CONCURRENCY), on a logarithmic scale. With a backlog, waiting is normal, because "
                    "the quota is fully used. Without data, no quota is set.",
                    _SECONDS,
                ),
                _quantiles("ingest_rate_limit_wait_seconds"),
                12,
            ),
            graph(
                Words(
                    "Granted share of the quota",
                    "Requests per second (rate) and concurrent requests that the selected workers may send. All workers "
                    "of all services with this quota share it. If the share is low while orders wait, other services "
                    "use the rest, or Redis is unavailable and each process keeps to its safe share.",
                    _COUNT,
                ),
                [Query(f"sum by (kind) (ingest_upstream_quota{{{_WORKERS}}})", "{{kind}}")],
                12,
            ),
        ],
    )


def postgresql() -> Section:
    """Batches stored in PostgreSQL."""
    return Section(
        "PostgreSQL",
        [
            logarithmic(
                Words(
                    "Duration of a batch",
                    "One transaction that stores a batch of orders, on a logarithmic scale. If it grows while batches "
                    "keep their size, PostgreSQL is slow because of locks, its disk, or too many connections. While "
                    "PostgreSQL is unavailable, workers keep their batches and wait.",
                    _SECONDS,
                ),
                _quantiles("ingest_store_seconds"),
                12,
            ),
            graph(
                Words(
                    "Orders per batch",
                    "Orders that arrive together are stored together, from single orders under a low load to "
                    "INGEST_BATCH_ROWS with a backlog. If it stays at that maximum, PostgreSQL is the bottleneck.",
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
    """The outcomes of orders, and their latency."""
    return Section(
        "Outcomes",
        [
            stacked(
                Words(
                    "Orders by outcome",
                    "Orders per second. stored: a newer version is in the table. unchanged: enqueued again with the "
                    "same content. erased: was erased before and stays erased. retried: will be retried. dead: became a "
                    "dead letter.",
                    _PER_SECOND,
                ),
                [Query(_rate("ingest_orders_total", "outcome"), "{{outcome}}")],
                8,
                parts=_OUTCOMES,
            ),
            logarithmic(
                Words(
                    "From enqueue to commit",
                    "Time from the first enqueue to the commit, including retries, on a logarithmic scale. p95 means "
                    "that 95 % of the orders were faster. If it is far above the duration of a request, orders wait in "
                    "the queue.",
                    _SECONDS,
                ),
                _quantiles("ingest_order_latency_seconds"),
                8,
            ),
            heat_map(
                Words(
                    "From enqueue to commit, all orders",
                    "A stronger colour means more orders. A single band is normal. A second band above it consists of "
                    "retried orders, and a rising band is a backlog.",
                    _SECONDS,
                ),
                _rate("ingest_order_latency_seconds_bucket", "le"),
                8,
                cell_unit=_PER_SECOND,
            ),
            graph(
                Words(
                    "Time since the last commit",
                    "Time since one of the selected workers last committed a batch. It grows while there is nothing to "
                    "store, and stays below a second while orders wait. Without data, no worker has committed a batch "
                    "since its start.",
                    _SECONDS,
                ),
                [Query(f"time() - max(ingest_last_success_timestamp_seconds{{{_WORKERS}}} > 0)", "last commit")],
                12,
            ),
            logarithmic(
                Words(
                    "Duration of the transform",
                    "One call of your own function (INGEST_TRANSFORM), including the wait for a free process, on a "
                    "logarithmic scale. At its limit (INGEST_TRANSFORM_TIMEOUT), orders become dead letters. Without "
                    "data, no transform is set.",
                    _SECONDS,
                ),
                _quantiles("ingest_transform_seconds"),
                12,
            ),
        ],
    )


def trouble() -> Section:
    """Retries, dead letters and restarts."""
    return Section(
        "Trouble",
        [
            bars(
                Words(
                    "Reclaimed deliveries",
                    "Deliveries per minute. idle: released when the circuit opened or a worker stopped, or not renewed "
                    "for INGEST_CLAIM_IDLE. restart: held by a process that died and was restarted. dead_consumer: held "
                    "by a process that stayed dead or was frozen. No order is lost. If the last two recur, find out why "
                    "processes die.",
                    _PER_MINUTE,
                ),
                [Query("60 * " + _rate("ingest_redeliveries_total", "reason"), "{{reason}}")],
                8,
                parts=_REASONS,
            ),
            bars(
                Words(
                    "Retried orders",
                    "Orders per minute that were moved to the retry set, by reason. throttled: the API responded with "
                    "429. connection, timeout, http_status and truncated: failures of the API. row_refused: PostgreSQL "
                    "rejected the row. row_locked: another transaction has locked the row. "
                    "Without data, no order was retried.",
                    _PER_MINUTE,
                ),
                [Query("60 * " + _rate("ingest_retries_total", "reason"), "{{reason}}")],
                8,
            ),
            bars(
                Words(
                    "New dead letters",
                    "Orders per minute that became dead letters. The alert IngestDeadLetters fires if there are any. "
                    "`ingest dead list` shows the reasons. A few are usually wrong IDs. Many together point to a change "
                    "of the API or of its data.",
                    _PER_MINUTE,
                ),
                [Query("60 * " + _rate("ingest_orders_total", where='outcome="dead"'), "dead")],
                8,
            ),
            graph(
                Words(
                    "Restarts within 15 minutes",
                    "Worker processes that died and were restarted, and restarts of whole worker commands. From three "
                    "on, the alert IngestProcessesRestart fires. Look at the logs, and check whether memory ran out.",
                    _COUNT,
                ),
                # An increase is an estimate, such as 1.01 for one event.
                [Query(f"round(job_instance:ingest_restarts:increase15m{{{_PROCESSES}}})", "{{instance}}")],
                12,
                levels=_RESTARTS,
            ),
            graph(
                Words(
                    "Lag of the event loop (p99)",
                    "Delay with which the event loop of a worker runs due callbacks. Above about 100 ms, the processes "
                    "lack CPU time, or a call blocks them. `event_loop_blocked` in the log shows the call.",
                    _SECONDS,
                ),
                [Query(_quantile(0.99, "ingest_event_loop_lag_seconds", by="instance"), "{{instance}}")],
                12,
            ),
        ],
    )


def single_workers() -> Section:
    """Each worker, to compare it with the others."""
    return Section(
        "Workers",
        [
            graph(
                Words(
                    "Stored, by worker",
                    "Orders per second. With a backlog, equal workers store about the same number. If a worker stores "
                    "far fewer, its host or network is slow.",
                    _PER_SECOND,
                ),
                [Query(_rate("ingest_orders_total", "instance", 'outcome="stored"'), "{{instance}}")],
                12,
            ),
            timeline(
                Words(
                    "Reachable by Prometheus, by worker",
                    "Down means that the worker hangs, has stopped, or cannot be reached. Where a line ends, the worker "
                    "is no longer a target of Prometheus, for example after scaling down.",
                    _COUNT,
                ),
                Query(f"up{{{_PROCESSES}}}", "{{instance}}"),
                12,
                states={0: ("down", WARN), 1: ("up", GOOD)},
            ).height(8),
        ],
    )


SECTIONS = (at_a_glance, queue, each_source, external_api, postgresql, outcomes, trouble, single_workers)

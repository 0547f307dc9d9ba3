"""Formats what `ingest status` prints."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_duration
from ingest.cli.terminal.width import Table, broken

if TYPE_CHECKING:
    from ingest.domain.deliveries.queue_state import QueueState
    from ingest.operations.state.status import SystemStatus
    from ingest.queue.operate.partition_monitor import ConsumerState

# The table shows this many consumers, those with a problem first.
_MOST_CONSUMERS = 20
_LONGEST_NAME = 64
_GLANCE = ("source", "waiting", "pending", "retries", "dead", "stored", "oldest", "state")
_CONSUMERS = Table(("consumer", "pending", "state"), names=1, facts=2)


def lines_of(sources: "Sequence[SystemStatus]", width: int) -> Iterator[str]:
    """The details of one source, or a line for each of several. Lines are broken between words where they are wider than `width`."""
    return _details(sources[0], width) if len(sources) == 1 else _glance(sources, width)


def _details(status: "SystemStatus", width: int) -> Iterator[str]:
    facts = list(_facts(status))
    values = max(len(value) for _, value in facts)
    for label, value in facts:
        yield f"{label:<17}  {value:>{values}}"
    yield from broken(
        [
            *_notices([status]),
            *_controls(status),
            *_entry_ids(status),
            *_servers(status),
        ],
        width,
    )
    if status.queue is not None:
        yield ""
        yield from _lanes(status.queue)
    if status.partitions:
        yield ""
        yield from _partitions(status.partitions)
    if status.consumers:
        yield ""
        yield from _consumers(status.consumers, status.drained, width)


def _glance(sources: "Sequence[SystemStatus]", width: int) -> Iterator[str]:
    from ingest.operations.state.status import totals

    rows = [(each.source, *_numbers(totals([each])), each.condition.state.text) for each in sources]
    yield from _right_aligned([_GLANCE, *rows, ("total", *_numbers(totals(sources)), "")])
    outages = [f"{each.source}: {line}" for each in sources for line in (*_controls(each), *_entry_ids(each))]
    yield from broken([*_notices(sources), *outages], width)
    # The servers are the same for all sources.
    yield from broken(_servers(sources[0]), width)


def _facts(status: "SystemStatus") -> Iterator[tuple[str, str]]:
    if status.source:
        yield "source", status.source
    yield "stream", f"{status.stream} (group {status.group})"
    queue, orders = status.queue, status.orders
    if queue is not None:
        yield "waiting", _count(queue.depth)
        yield "pending", _count(queue.pending)
        yield "oldest", _age(queue.oldest_age)
        yield "retries scheduled", _count(queue.retries)
        yield "dead letters", _count(queue.dead)
    if orders is not None:
        last = orders.last_ingested_at
        yield "orders stored", _count(orders.stored)
        yield "last stored", "never" if last is None else f"{last:%Y-%m-%d %H:%M:%S} UTC"
    yield "state", status.condition.state.text


def _controls(status: "SystemStatus") -> Iterator[str]:
    """The changed limits of the source."""
    if (limits := status.limits) is not None:
        values = {"concurrency": limits.concurrency, "rate": limits.rate}
        changed = [f"{name} {value:g}" for name, value in values.items() if value is not None]
        yield f"limits changed by {printable(limits.by, _LONGEST_NAME)}: {', '.join(changed)}"


def _entry_ids(status: "SystemStatus") -> Iterator[str]:
    """The lanes with entry IDs that are too far ahead."""
    whole = {} if status.queue is None else {status.stream: status.queue}
    for queue, state in (status.partitions or whole).items():
        for problem in state.id_problems:
            yield f"{queue}: {problem}: run `ingest partitions repair`"


def _notices(sources: "Sequence[SystemStatus]") -> Iterator[str]:
    """One line for each cause of an incident."""
    from ingest.operations.state.notices import notices_of

    now = datetime.fromisoformat(sources[0].at)
    for each in notices_of({each.source: each.condition for each in sources}):
        yield printable(each.line(now))


def _servers(status: "SystemStatus") -> Iterator[str]:
    """Servers that this command cannot reach, unless a notice names them, and missing tables."""
    known = {reason.server for reason in status.condition.reasons}
    for server, error in status.errors.items():
        if server not in known:
            yield f"{server}: {printable(' '.join(error.split()))}"
    if status.orders is not None and not status.orders.is_migrated:
        yield "postgres: the database contains no tables for orders. Run `ingest migrate`"


def _lanes(queue: "QueueState") -> Iterator[str]:
    states = queue.lanes.items()
    rows = [(name, _count(lane.depth), _count(lane.pending), _age(lane.oldest_age)) for name, lane in states]
    yield from _right_aligned([("lane", "waiting", "pending", "oldest"), *rows])


def _partitions(partitions: "Mapping[str, QueueState]") -> Iterator[str]:
    rows = [
        (name, _count(each.depth), _count(each.pending), _count(each.retries), _count(each.dead), _age(each.oldest_age))
        for name, each in sorted(partitions.items(), key=lambda item: (len(item[0]), item[0]))
    ]
    yield from _right_aligned([("partition", "waiting", "pending", "retries", "dead", "oldest"), *rows])


def _right_aligned(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, with its first column aligned on the left."""
    names, *others = (max(map(len, column)) for column in zip(*table, strict=True))
    for name, *values in table:
        columns = (f"{value:>{size}}" for value, size in zip(values, others, strict=True))
        yield "  ".join((f"{name:<{names}}", *columns)).rstrip()


def _numbers(totals: Mapping[str, Any]) -> Sequence[str]:
    counts = [_count(totals[name]) for name in ("depth", "pending", "retries", "dead", "stored")]
    return (*counts, _age(totals["oldest_age"]))


def _consumers(consumers: "Sequence[ConsumerState]", drained: Sequence[str], width: int) -> Iterator[str]:
    def is_well(consumer: "ConsumerState") -> bool:
        return consumer.state == "alive" and not consumer.reasons and consumer.name not in drained

    problems_first = sorted(consumers, key=is_well)
    rows = [
        (
            printable(consumer.name, _LONGEST_NAME),
            f"{_count(consumer.pending):>7}",
            _condition(consumer) + (", drained" if consumer.name in drained else ""),
        )
        for consumer in problems_first[:_MOST_CONSUMERS]
    ]
    yield from _CONSUMERS.lines(rows, [condition for _, _, condition in rows], width)
    if (more := len(consumers) - len(rows)) > 0:
        yield f"and {more:,} more: --json shows all"


def _condition(consumer: "ConsumerState") -> str:
    match consumer.state:
        case "alive":
            reasons = dict.fromkeys(reason.state.text for reason in consumer.reasons)
            return ", ".join(["alive", *reasons])
        case "stale":
            return "stopped" if consumer.stale_for is None else f"stale for {format_duration(consumer.stale_for)}"
        case _:
            return f"no heartbeat, idle for {format_duration(consumer.idle or 0.0)}"


def _count(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)

"""Formats what `ingest status` prints."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_duration
from ingest.cli.terminal.width import Table

if TYPE_CHECKING:
    from ingest.domain.deliveries.queue_state import QueueState
    from ingest.operations.state.status import SystemStatus
    from ingest.queue.operate.partition_monitor import ConsumerState

# The table shows this many consumers, those with a problem first.
_MOST_CONSUMERS = 20
_LONGEST_NAME = 64
_GLANCE = ("source", "waiting", "pending", "retries", "dead", "stored", "oldest", "circuit")
_CONSUMERS = Table(("consumer", "pending", "state"), names=1, facts=2)


def lines_of(sources: "Sequence[SystemStatus]", width: int) -> Iterator[str]:
    """The details of one source, or a line for each of several. Lines are broken between words where they are wider than `width`."""
    return _details(sources[0], width) if len(sources) == 1 else _glance(sources, width)


def _details(status: "SystemStatus", width: int) -> Iterator[str]:
    facts = list(_facts(status))
    values = max(len(value) for _, value in facts)
    for label, value in facts:
        yield f"{label:<17}  {value:>{values}}"
    yield from _broken(
        [
            *_controls(status),
            *_without_worker([status]),
            *_outages(status),
            *_entry_ids(status),
            *_troubles(status),
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

    # "processes" would make the lines wider than 80 characters.
    rows = [
        (each.source, *_numbers(totals([each])), _circuits(each.consumers or ()).removesuffix(" processes"))
        for each in sources
    ]
    yield from _right_aligned([_GLANCE, *rows, ("total", *_numbers(totals(sources)), "")])
    outages = [
        f"{each.source}: {line}"
        for each in sources
        for line in (*_controls(each), *_outages(each), *_entry_ids(each), *_troubles(each))
    ]
    yield from _broken([*_without_worker(sources), *outages], width)
    # The servers are the same for all sources.
    yield from _broken(_servers(sources[0]), width)


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
    if status.consumers:
        yield "circuit", _circuits(status.consumers)


def _circuits(consumers: "Sequence[ConsumerState]") -> str:
    alive = [consumer for consumer in consumers if consumer.state == "alive"]
    opened = sum(consumer.circuit is not None for consumer in alive)
    if not alive:
        return "-"
    return f"open in {opened:,} of {len(alive):,} processes" if opened else "closed"


def _without_worker(sources: "Sequence[SystemStatus]") -> Iterator[str]:
    """The sources whose orders no worker processes, and how to start one."""
    idle = [
        each.source
        for each in sources
        if each.consumers is not None and all(consumer.state != "alive" for consumer in each.consumers)
    ]
    if len(idle) == len(sources):
        yield "no worker is running: start one with `ingest worker`"
    else:
        for source in idle:
            yield f"{source}: no worker is running: start one with `ingest worker --source {source}`"


def _controls(status: "SystemStatus") -> Iterator[str]:
    """The pause and the changed limits of the source."""
    if (pause := status.pause) is not None:
        left = "until it is resumed" if pause["left"] is None else f"for another {format_duration(pause['left'])}"
        reason = f": {printable(pause['reason'])}" if pause["reason"] else ""
        yield f"paused {left} by {printable(pause['by'], _LONGEST_NAME)}{reason}"
    if (limits := status.limits) is not None:
        changed = [f"{name} {limits[name]:g}" for name in ("concurrency", "rate") if limits[name] is not None]
        yield f"limits changed by {printable(limits['by'], _LONGEST_NAME)}: {', '.join(changed)}"


def _outages(status: "SystemStatus") -> Iterator[str]:
    """The reasons of open circuits."""
    longest: dict[str, float] = {}
    for consumer in status.consumers or ():
        if circuit := consumer.circuit:
            longest[circuit.error] = max(circuit.open_for, longest.get(circuit.error, 0.0))
    for error, seconds in sorted(longest.items()):
        yield f"external API: {printable(error)} (for {format_duration(seconds)})"


def _entry_ids(status: "SystemStatus") -> Iterator[str]:
    """The lanes with entry IDs that are too far ahead."""
    whole = {} if status.queue is None else {status.stream: status.queue}
    for queue, state in (status.partitions or whole).items():
        for problem in state.id_problems:
            yield f"{queue}: {problem}: run `ingest partitions repair`"


def _troubles(status: "SystemStatus") -> Iterator[str]:
    """The partitions whose servers are slow, deny access or are unavailable."""
    for trouble in status.troubles:
        if trouble.text not in status.errors.values():
            yield printable(" ".join(trouble.text.split()))


def _servers(status: "SystemStatus") -> Iterator[str]:
    """Unreachable servers, and missing tables."""
    for server, error in status.errors.items():
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


def _broken(lines: Iterable[str], width: int) -> Iterator[str]:
    for line in lines:
        yield from textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _numbers(totals: Mapping[str, Any]) -> Sequence[str]:
    counts = [_count(totals[name]) for name in ("depth", "pending", "retries", "dead", "stored")]
    return (*counts, _age(totals["oldest_age"]))


def _consumers(consumers: "Sequence[ConsumerState]", drained: Sequence[str], width: int) -> Iterator[str]:
    def is_well(consumer: "ConsumerState") -> bool:
        return consumer.state == "alive" and not consumer.circuit and consumer.name not in drained

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
            circuit = consumer.circuit
            return "alive" if circuit is None else f"alive, circuit open for {format_duration(circuit.open_for)}"
        case "stale":
            return "stopped" if consumer.stale_for is None else f"stale for {format_duration(consumer.stale_for)}"
        case _:
            return f"no heartbeat, idle for {format_duration(consumer.idle or 0.0)}"


def _count(number: int | None) -> str:
    return "unknown" if number is None else f"{number:,}"


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)

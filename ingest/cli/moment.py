"""A moment of the service, and what `ingest status` prints of it: pure."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ingest.cli.text import printable

# Of more, the table shows these; those in trouble first.
_MOST_CONSUMERS = 20
_LONGEST_NAME = 64
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


@dataclass(frozen=True, slots=True)
class Status:
    """A moment of the service; a part whose server cannot be reached is None, and its error says why."""

    at: str
    stream: str
    group: str
    queue: Any
    consumers: list[Any] | None
    orders: Any
    errors: dict[str, str]


def lines_of(moment: Status, width: int) -> Iterator[str]:
    """The lines, broken between words where they are wider than `width`."""
    facts = list(_facts(moment))
    values = max(len(value) for _, value in facts)
    for label, value in facts:
        yield f"{label:<17}  {value:>{values}}"
    for line in _troubles(moment):
        yield from textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    if moment.consumers:
        yield ""
        yield from _table(moment.consumers)


def _facts(moment: Status) -> Iterator[tuple[str, str]]:
    yield "stream", f"{moment.stream} (group {moment.group})"
    queue, orders = moment.queue, moment.orders
    if queue is not None:
        yield "waiting", "unknown" if queue["depth"] is None else f"{queue['depth']:,}"
        yield "in work", f"{queue['pending']:,}"
        yield "oldest", "-" if queue["oldest_age"] is None else duration(queue["oldest_age"])
        yield "retries scheduled", f"{queue['retries']:,}"
        yield "dead letters", f"{queue['dead']:,}"
    if orders is not None:
        last = orders["last_ingested_at"]
        yield "orders stored", f"{orders['stored']:,}"
        yield "last stored", "never" if last is None else f"{last:%Y-%m-%d %H:%M:%S} UTC"
    if moment.consumers:
        yield "circuit", _circuits(moment.consumers)


def _circuits(consumers: Sequence[Any]) -> str:
    alive = [consumer for consumer in consumers if consumer["state"] == "alive"]
    opened = sum(consumer["circuit"] is not None for consumer in alive)
    if not alive:
        return "-"
    return f"open in {opened:,} of {len(alive):,} processes" if opened else "closed"


def _troubles(moment: Status) -> Iterator[str]:
    """What a person should know first: why the external API is left in peace, and which server cannot be reached."""
    longest: dict[str, float] = {}
    for consumer in moment.consumers or ():
        if circuit := consumer["circuit"]:
            longest[circuit["error"]] = max(circuit["open_for"], longest.get(circuit["error"], 0.0))
    for error, seconds in sorted(longest.items()):
        yield f"external API: {printable(error)} since {duration(seconds)}"
    for server, error in moment.errors.items():
        yield f"{server}: {printable(' '.join(error.split()))}"


def _table(consumers: Sequence[Any]) -> Iterator[str]:
    by_trouble = sorted(consumers, key=lambda consumer: consumer["state"] == "alive" and not consumer["circuit"])
    rows = [
        (printable(consumer["name"], _LONGEST_NAME), f"{consumer['pending']:,}", _condition(consumer))
        for consumer in by_trouble[:_MOST_CONSUMERS]
    ]
    names = max(len("consumer"), *(len(name) for name, _, _ in rows))
    yield f"{'consumer':<{names}}  in work  state"
    for name, pending, condition in rows:
        yield f"{name:<{names}}  {pending:>7}  {condition}"
    if (more := len(consumers) - len(rows)) > 0:
        yield f"and {more:,} more: --json shows all"


def _condition(consumer: Any) -> str:
    match consumer["state"]:
        case "alive":
            circuit = consumer["circuit"]
            return "alive" if circuit is None else f"alive, circuit open since {duration(circuit['open_for'])}"
        case "stale":
            return "stopped" if consumer["stale_for"] is None else f"stale since {duration(consumer['stale_for'])}"
        case _:
            return f"no heartbeat, idle since {duration(consumer['idle'] or 0.0)}"


def duration(seconds: float) -> str:
    """How long that is, roughly."""
    for unit, length in _UNITS:
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"

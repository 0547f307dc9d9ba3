"""Formats what `ingest top` shows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from ingest.cli.terminal.short_numbers import age, format_clock, number, rate, seconds
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_duration

if TYPE_CHECKING:
    from ingest.domain.operating.source_state import Reason
    from ingest.operations.state.snapshot import Snapshot, SourceSnapshot

# The numbers of a source, each with its width, including a blank.
_COLUMNS = (("waiting", 8), ("retries", 8), ("dead", 6), ("oldest", 7), ("in/s", 6), ("out/s", 6), ("p95", 7))
_STATE = 17
_NARROWEST_NAME = 8
_STYLE_OF_OTHERS = "yellow"
_SLOW_REQUEST = 1.0
# Without a terminal, the screen has no end. Consumers in trouble are first.
_MOST_WORKERS = 20
_KEYS = "q quit   p freeze   s sort by {}"
_FROZEN = "q quit   p continue   s sort by {}   FROZEN"

Sort = str
SORTS: Mapping[Sort, "Callable[[SourceSnapshot], object]"] = {
    "trouble": lambda each: each.trouble,
    "waiting": lambda each: (-_waiting(each), each.source),
    "oldest": lambda each: (-(each.queue.oldest_age or 0.0) if each.queue else 0.0, each.source),
    "dead": lambda each: (-(each.queue.dead or 0) if each.queue else 0, each.source),
    "name": lambda each: each.source,
}
"""The orders of the sources by name, first the one in use at the start."""


def lines_of(
    snapshot: "Snapshot", width: int, height: int | None, sort: Sort, *, is_frozen: bool = False
) -> list[Text]:
    """The screen, none of whose lines is wider than `width`. A `height` of None shows everything, without the keys."""
    head = [*_summary(snapshot, width), Text("")]
    notes = [Text(_cut(f" {line}", width), "yellow") for line in _notes(snapshot, width)]
    sources = sorted(snapshot.sources, key=SORTS[sort])  # type: ignore[arg-type]  # tuples and texts have an order
    workers = [_worker(name, *found, width) for name, found in _workers(snapshot)]
    keys = [] if height is None else [Text(_cut((_FROZEN if is_frozen else _KEYS).format(sort), width), "dim")]
    # Each part takes what it needs, while it leaves the next ones a few lines.
    left = 10_000 if height is None else height - len(head) - len(keys) - 1
    shown = list(_sources(sources, snapshot, width, max(3, left - min(len(notes), 4) - min(len(workers) + 2, 6))))
    left -= len(shown)
    shown += _limited(notes, max(1, left - min(len(workers) + 2, 6)))
    left = left - min(len(notes), left) - 2
    if left > 0 and workers:
        shown += [
            Text(""),
            Text(_cut(_worker_header(width), width), "bold"),
            *_limited(workers, min(left, _MOST_WORKERS)),
        ]
    if height is not None:
        shown = shown[: height - len(head) - len(keys)]
        shown += [Text("")] * (height - len(head) - len(keys) - len(shown))
    return [*head, *shown, *keys]


# -- all sources together -----------------------------------------------------------------------------------------


def _summary(snapshot: "Snapshot", width: int) -> Iterator[Text]:
    left = f"ingest top   {snapshot.workers:,} worker process{'' if snapshot.workers == 1 else 'es'}"
    right = f"{format_clock(snapshot.at)} UTC"
    yield Text(
        set_cell_size(left, max(0, width - len(right))) + right if width < 1_000 else f"{left}   {right}", "bold"
    )
    if snapshot.problem:
        yield Text(_cut(f"Redis is unavailable: {printable(' '.join(snapshot.problem.split()))}", width), "bold red")
        return
    rates, queue = snapshot.rates, snapshot.queue
    yield from _facts(
        width,
        ("arrived", f"{rate(rates.arrived)}/s"),
        ("stored", f"{rate(rates.stored)}/s"),
        ("retried", f"{rate(rates.retried)}/s"),
        ("dead", f"{rate(rates.dead)}/s"),
        ("requests", f"{rate(rates.requests)}/s"),
    )
    yield from _facts(
        width,
        ("in flight", number(rates.in_flight)),
        ("median", seconds(rates.median)),
        ("p95", seconds(rates.p95)),
        ("dead letters", number(queue.dead if queue else None)),
    )


def _facts(width: int, *facts: tuple[str, str]) -> Iterator[Text]:
    yield Text(_cut("   ".join(f"{name} {value}" for name, value in facts), width))


# -- each source --------------------------------------------------------------------------------------------------


def _sources(sources: "Sequence[SourceSnapshot]", snapshot: "Snapshot", width: int, most: int) -> Iterator[Text]:
    names = [each.source or "(unnamed)" for each in sources]
    fixed = sum(size for _, size in _COLUMNS) + 2 + _STATE
    size = max(_NARROWEST_NAME, min(max(map(cell_len, [*names, "source"])), width - fixed))
    header = set_cell_size("source", size) + "".join(f"{name:>{column}}" for name, column in _COLUMNS)
    yield Text(_cut(f"{header}  state", width), "bold")
    has_total = len(sources) > 1
    rows = [Text(_cut(_row(name, size, each), width), _style(each)) for name, each in zip(names, sources, strict=True)]
    yield from _limited(rows, most - 1 - has_total)
    if has_total:
        yield Text(_cut(_columns("total", size, snapshot), width), "bold")


def _row(name: str, size: int, source: "SourceSnapshot") -> str:
    return f"{_columns(name, size, source)}  {source.state.text}"


def _columns(name: str, size: int, found: "Snapshot | SourceSnapshot") -> str:
    queue, rates = found.queue, found.rates
    numbers = (
        number(queue.depth if queue else None),
        number(queue.retries if queue else None),
        number(queue.dead if queue else None),
        age(queue.oldest_age if queue else None),
        rate(rates.arrived),
        rate(rates.stored),
        seconds(rates.p95),
    )
    shown = name if cell_len(name) <= size else f"{name[: size - 1]}…"
    cells = (f"{value:>{column}}" for value, (_, column) in zip(numbers, _COLUMNS, strict=True))
    return set_cell_size(shown, size) + "".join(cells)


def _style(source: "SourceSnapshot") -> str:
    if source.condition.cannot_work:
        return "bold red"
    return "" if source.state in ("running", "idle") else _STYLE_OF_OTHERS


def _notes(snapshot: "Snapshot", width: int) -> Iterator[str]:
    """What slows down or stops each source."""
    if snapshot.problem:
        return
    yield from (printable(each.line(snapshot.at, width)) for each in snapshot.notices)
    for each in snapshot.sources:
        name = f"{each.source}: " if each.source else ""
        yield from (f"{name}{note}" for note in _notes_of(each))


def _notes_of(source: "SourceSnapshot") -> Iterator[str]:
    for problem in source.queue.id_problems if source.queue is not None else ():
        yield f"{problem}: run `ingest partitions repair`"
    if (took := source.rates.request_seconds) is not None and took >= _SLOW_REQUEST:
        yield f"requests to the external API take {format_duration(took)}"
    if source.tuning is not None:
        limits = (("concurrency", source.tuning.concurrency), ("rate", source.tuning.rate))
        changes = ", ".join(f"{key} {value:g}" for key, value in limits if value is not None)
        yield f"{changes}, set by {printable(source.tuning.by)}"


# -- worker processes ---------------------------------------------------------------------------------------------


def _workers(snapshot: "Snapshot") -> "Iterable[tuple[str, tuple[int, str]]]":
    """The worker processes with their pending orders and their state, those in trouble first."""
    from ingest.domain.operating.source_state import merged

    pending: dict[str, int] = {}
    states: dict[str, str] = {}
    reasons: dict[str, list[Reason]] = {}
    for source in snapshot.sources:
        for each in source.consumers:
            pending[each.name] = pending.get(each.name, 0) + (each.pending or 0)
            state = "alive" if each.state == "alive" else "stopped"
            if each.state == "stale" and each.stale_for is not None:
                state = f"stale for {format_duration(each.stale_for)}"
            if state != "alive" or each.name not in states:
                states[each.name] = state
            reasons.setdefault(each.name, []).extend(each.reasons)
    states |= {name: merged(found)[0].state.text for name, found in reasons.items() if found}
    drained = {name for name, state in states.items() if state == "alive" and snapshot.controls.drain_of(name)}
    states |= dict.fromkeys(drained, "drained")
    ordered = sorted(states, key=lambda name: (states[name] == "alive", name))
    return [(name, (pending[name], states[name])) for name in ordered]


def _worker_header(width: int) -> str:
    return f"{set_cell_size('worker process', min(40, max(20, width - 40)))} {'pending':>8}  state"


def _worker(name: str, pending: int, state: str, width: int) -> Text:
    size = min(40, max(20, width - 40))
    shown = printable(name)
    shown = shown if cell_len(shown) <= size else f"{shown[: size - 1]}…"
    line = f"{set_cell_size(shown, size)} {number(pending):>8}  {state}"
    return Text(_cut(line, width), "" if state == "alive" else _STYLE_OF_OTHERS)


def _waiting(source: "SourceSnapshot") -> int:
    return 0 if source.queue is None else source.queue.depth or 0


def _limited(lines: Sequence[Text], most: int) -> Iterator[Text]:
    if len(lines) <= most:
        yield from lines
        return
    yield from lines[: most - 1]
    yield Text(f"and {len(lines) - most + 1:,} more", "dim")


def _cut(text: str, width: int) -> str:
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"

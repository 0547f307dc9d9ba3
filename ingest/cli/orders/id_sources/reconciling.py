"""Reconciles a source of IDs with progress, and prints the report."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

import typer

from ingest.cli.invocation import say
from ingest.cli.orders.id_sources.found import Found, InvalidLines
from ingest.cli.orders.id_sources.sources import IdSource
from ingest.cli.terminal.output import new_file, standard_output
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import counted, printable
from ingest.domain.orders.order_id import looks_like_json
from ingest.operations.reconcile import Backends, ReconciliationReport, reconcile
from ingest.process.interrupt import interrupting_reads

STDOUT = "-"
_READ_AT_ONCE = 1_000
# The columns before a note in the report.
_BELOW_NOTES = " " * 30


async def reconcile_source(
    backends: Backends, source: IdSource, missing: str | None, *, complete: bool, replace: bool
) -> tuple[ReconciliationReport, int]:
    """Reconcile all orders of the source, and write the missing ones to `missing`.

    Returns the report, and the number of lines without a valid ID.
    """
    invalid = InvalidLines(source.name)
    with missing_orders(missing, replace=replace) as on_lost, ExitStack() as stack:
        display: ProgressDisplay | None = None
        data_stream = sys.stdout if missing == STDOUT else None

        def show(done: int, total: int) -> None:
            nonlocal display
            display = display or stack.enter_context(ProgressDisplay("searching", data_stream=data_stream))
            display.update(done, total)

        report = await reconcile(_read(source, invalid), backends, complete=complete, on_lost=on_lost, on_progress=show)
    return report, invalid.count


def print_report(
    report: ReconciliationReport, source: str, invalid: int, missing: str | None, *, as_json: bool
) -> None:
    """Print the report, on stderr for the terminal and on stdout for scripts."""
    if as_json:
        typer.echo(json.dumps({"source": source} | report.as_dict() | {"invalid": invalid}))
    else:
        if source:
            say(f"source          {printable(source)}")
        for line in str(report).split("\n"):
            say(printable(line), _BELOW_NOTES)
    count = report.lost.count
    if missing not in {None, STDOUT}:
        say(f"{counted(count, 'missing order')} in {missing}")
    elif missing is None and count > len(report.lost.examples):
        say("--missing FILE writes all missing orders to a file")


def _read(source: IdSource, invalid: InvalidLines) -> Iterator[str]:
    with ProgressDisplay("reading the list") as display:
        found, count = source.read(), 0
        while some := _next(found):
            for each in some:
                if (order_id := invalid.checked(each, display.say)) is not None:
                    yield order_id
            count += len(some)
            display.update(count)


def _next(found: Iterator[Found]) -> list[Found]:
    with interrupting_reads():
        return list(islice(found, _READ_AT_ONCE))


@contextmanager
def missing_orders(target: str | None, *, replace: bool) -> Iterator[Callable[[str], None] | None]:
    """Write one ID per line, as `--file` reads it. A file appears under its name when all are written."""
    if target is None:
        yield None
        return
    with standard_output() if target == STDOUT else new_file(Path(target), replace=replace) as stream:
        yield lambda order_id: print(_line_of(order_id), file=stream)


def _line_of(order_id: str) -> str:
    """An order ID as `--file` reads it."""
    return json.dumps(order_id, ensure_ascii=False) if looks_like_json(order_id) else order_id

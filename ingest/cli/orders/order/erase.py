"""`ingest order erase`: erases orders permanently."""

import json
from functools import partial
from typing import TYPE_CHECKING

import typer

from ingest.cli.invocation import actor, backends_of_source, is_confirmed, say
from ingest.cli.options import AsJson, DryRun, OneSource, OrderIds, Yes, parse_ids
from ingest.cli.terminal.text import counted
from ingest.domain.errors import QueueUnavailable, StoreUnavailable, UserError
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ingest.operations.backends import Backends
    from ingest.operations.stored_orders.orders import Erased


def erase(
    ids: OrderIds, *, source: OneSource = None, dry_run: DryRun = False, yes: Yes = False, as_json: AsJson = False
) -> None:
    """Erase orders permanently.

    It erases their rows with the documents, their retries and their dead letters.

    An erased order is not stored again, even if it is enqueued again, queued or in flight. It need not exist. Erasing
    an order again is safe, and finishes an interrupted erasure. The audit log records who has erased it.

    Examples:
    `ingest order erase 536365` erases an order, after asking for confirmation.

    `ingest order erase 536365 --dry-run` searches the whole queue, counts what would be removed, and changes nothing.

    `ingest order erase 536365 --source shop-de` erases an order of one source, and no order of another with the same ID.
    With several sources, `--source` is required.

    `ingest order erase --yes --json 536365 536366` erases without a confirmation, and prints JSON.

    INGEST_POSTGRES_DSN has to name a role that may erase orders: the owner of the tables, or a role to
    which `ingest migrate --api-role` has granted the rights.
    """
    from ingest.cli.terminal.progress import run_with_progress
    from ingest.operations.stored_orders.orders import erase as run

    order_ids = parse_ids(ids)
    backends = backends_of_source(source)
    what = counted(len(order_ids), "order") + (f" of {backends.source}" if backends.source else "")
    if dry_run:
        _report(
            backends.source,
            order_ids,
            run_with_progress("searching", partial(_found, backends, order_ids)),
            what,
            would=True,
            as_json=as_json,
        )
        return
    question = f"This erases {what} for good: rows, documents, retries and dead letters."
    if not yes and not is_confirmed(question, change=f"erase {what} for good"):
        say("nothing was changed")
        raise typer.Exit(1)
    so_far = 0

    def on_progress(count: int) -> None:
        nonlocal so_far
        so_far = count

    def told() -> str:
        return f"{what if so_far == len(order_ids) else f'{so_far:,} of {what}'} erased from the database"

    try:
        erased = run_interruptible(run(backends, order_ids, actor(), on_progress=on_progress))
    except QueueUnavailable as error:
        raise UserError(
            f"{told()}; retries and dead letters may remain: run it again when Redis can be used ({error})"
        ) from error
    except (StoreUnavailable, KeyboardInterrupt) as error:
        if so_far or isinstance(error, KeyboardInterrupt):
            more = "" if so_far == len(order_ids) else "more may be, and "
            say(f"{told()}; {more}retries and dead letters may remain: run it again to finish")
        raise
    _report(backends.source, order_ids, erased, what, would=False, as_json=as_json)


async def _found(backends: "Backends", order_ids: "Sequence[str]", on_progress: "Callable[..., None]") -> "Erased":
    """Count the rows and entries that an erasure would remove."""
    from ingest.domain.orders.order_state import DeadEntry, RetryEntry
    from ingest.operations.stored_orders.order_places import locate
    from ingest.operations.stored_orders.orders import Erased

    states = await locate([backends], order_ids, on_progress=on_progress)
    entries = [entry for state in states for entry in state.entries]
    return Erased(
        rows=sum(state.row is not None for state in states),
        retries=sum(isinstance(entry, RetryEntry) for entry in entries),
        dead_letters=sum(isinstance(entry, DeadEntry) for entry in entries),
    )


def _report(source: str, order_ids: "Sequence[str]", found: "Erased", what: str, *, would: bool, as_json: bool) -> None:
    if as_json:
        removed = {"rows": found.rows, "retries": found.retries, "dead_letters": found.dead_letters}
        typer.echo(json.dumps({"source": source, "erased": order_ids, "removed": removed, "dry_run": would}))
        return
    retries = f"{found.retries:,} {'retry' if found.retries == 1 else 'retries'}"
    counts = f"{counted(found.rows, 'row')}, {retries}, {counted(found.dead_letters, 'dead letter')}"
    typer.echo(f"would erase {what}: {counts}" if would else f"erased {what}: removed {counts}")

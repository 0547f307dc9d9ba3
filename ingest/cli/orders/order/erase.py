"""`ingest order erase`: erases orders permanently."""

import json

import typer

from ingest.cli.invocation import actor, backends_of_source, is_confirmed, say
from ingest.cli.options import AsJson, OneSource, OrderIds, Yes, parse_ids
from ingest.cli.terminal.text import counted
from ingest.domain.errors import QueueUnavailable, StoreUnavailable, UserError
from ingest.process.interrupt import run_interruptible


def erase(ids: OrderIds, *, source: OneSource = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Erase orders permanently.

    It erases their rows with the documents, their retries and their dead letters.

    An erased order is not stored again, even if it is enqueued again, queued or in flight. It need not exist. Erasing
    an order again is safe, and finishes an interrupted erasure. The audit log records who has erased it.

    Examples:
    `ingest order erase 536365` erases an order, after asking for confirmation.

    `ingest order erase 536365 --source shop-de` erases an order of one source, and no order of another with the same ID.
    With several sources, `--source` is required.

    `ingest order erase --yes --json 536365 536366` erases without a confirmation, and prints JSON.

    INGEST_POSTGRES_DSN has to name a role that may erase orders: the owner of the tables, or one that
    `ingest migrate --api-role` has granted the rights.
    """
    from ingest.operations.orders import erase as run

    order_ids = parse_ids(ids)
    backends = backends_of_source(source)
    what = counted(len(order_ids), "order") + (f" of {backends.source}" if backends.source else "")
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
    if as_json:
        removed = {"rows": erased.rows, "retries": erased.retries, "dead_letters": erased.dead_letters}
        typer.echo(json.dumps({"source": backends.source, "erased": order_ids, "removed": removed}))
    else:
        removed_from_queue = f"{erased.retries:,} {'retry' if erased.retries == 1 else 'retries'}"
        dead_letters = counted(erased.dead_letters, "dead letter")
        typer.echo(f"erased {what}: removed {counted(erased.rows, 'row')}, {removed_from_queue}, {dead_letters}")

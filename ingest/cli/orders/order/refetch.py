"""`ingest order refetch`: has orders fetched again."""

import json
import os
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from ingest.cli.invocation import actor, backends_of_source, is_confirmed, reader, say, start_with_source
from ingest.cli.options import AsJson, OneSource, Yes, parse_ids
from ingest.cli.orders.filter_options import selecting
from ingest.cli.terminal.text import counted, printable
from ingest.domain.errors import ConfigError
from ingest.domain.orders.order_filter import OrderFilter
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.domain.operating.jobs import JobRequest
    from ingest.operations.backends import Backends
    from ingest.operations.rebuilding.refetch_preview import RefetchPreview
    from ingest.settings import Settings


@selecting
def refetch(
    ids: Annotated[list[str] | None, typer.Argument(help="Order ID.", metavar="ID", hidden=True)] = None,
    *,
    selection: OrderFilter,
    source: OneSource = None,
    rate: Annotated[float | None, typer.Option(help="Enqueue at most N orders per second.", metavar="N")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only fetch a few orders, and show the fields that would change.")
    ] = False,
    sample: Annotated[
        int, typer.Option(help="Orders that a dry run fetches at most.", metavar="N", min=0, max=100)
    ] = 20,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Fetch orders again, whatever their version.

    Use it when a stored version is wrong, such as an `updated_at` in the future that keeps every later document out, or after a
    wrong mapping. The orders are enqueued, so that a worker has to run. The audit log records who did it.

    Orders that you name go to the express lane. Orders that you select by their properties go to the main lane.

    Examples:
    `ingest order refetch 536365` replaces a stored order by the external API's current one, even if its version is
    older.

    `ingest order refetch 536365 --source shop-de` fetches an order of one source. With several sources, `--source`
    is required.

    `ingest order refetch --stored-between 3h 2h --dry-run` fetches 20 of the orders that were stored within an hour,
    and shows the fields that would change.

    `ingest order refetch --stored-between 3h 2h --rate 50` fetches all of them with a job, which `ingest job resume` continues if
    it is interrupted.

    `ingest order refetch --json 536365 536366` prints JSON.
    """
    order_ids = parse_ids(ids or [])
    if bool(order_ids) is not selection.is_everything:
        raise ConfigError("choose orders by IDs, or by their properties such as --stored-between")
    if dry_run:
        chosen = OrderFilter(ids=tuple(order_ids)) if order_ids else selection
        _preview(start_with_source(source), chosen, sample, as_json=as_json)
    elif order_ids:
        _refetch_named(backends_of_source(source), order_ids, as_json=as_json)
    else:
        _refetch_selected(backends_of_source(source), selection, rate, yes=yes, as_json=as_json)


def _refetch_named(backends: "Backends", order_ids: "Sequence[str]", *, as_json: bool) -> None:
    from ingest.operations.rebuilding.refetch import refetch as run

    stored = run_interruptible(run(backends, order_ids, actor()))
    if as_json:
        typer.echo(json.dumps({"source": backends.source, "enqueued": order_ids, "stored": stored}))
    else:
        typer.echo(f"enqueued {counted(len(order_ids), 'order')}, of which {stored:,} had a version that is reset")


def _refetch_selected(
    backends: "Backends", selection: OrderFilter, rate: float | None, *, yes: bool, as_json: bool
) -> None:
    from ingest.cli.queues.bulk import start_and_run
    from ingest.cli.terminal.progress import ProgressDisplay
    from ingest.domain.operating.jobs import JobKind, JobState
    from ingest.operations.jobs.orders import order_request
    from ingest.operations.state.worker_versions import require_same_version
    from ingest.operations.stored_orders.order_list import count_orders

    run_interruptible(require_same_version(backends))
    total = run_interruptible(count_orders(backends, selection))
    if total == 0:
        typer.echo(json.dumps({"source": backends.source, "count": 0}) if as_json else "no stored order matches")
        return
    change = f"fetch {counted(total, 'order') if total is not None else 'all matching orders'} again"
    if not yes and not is_confirmed(f"This would {change}.", change=change):
        say("nothing was changed")
        raise typer.Exit(1)
    wanted = order_request(JobKind.ENQUEUE, selection, total=total, rate=rate)

    async def request(_: object) -> "JobRequest":
        return wanted

    with ProgressDisplay("enqueueing", total) as display:
        running = start_and_run(backends, request, lambda progress: display.update(progress.done), display.say)
        ended = run_interruptible(running)
    if as_json:
        counts = {"count": ended.progress.done, "job": ended.id, "state": ended.state.value}
        typer.echo(json.dumps({"source": backends.source} | counts))
    else:
        enqueued = counted(ended.progress.done, "order")
        typer.echo(f"enqueued {enqueued}: `ingest job show {ended.id}` counts the rows that change")
    if ended.state is not JobState.DONE:
        say(f"the job {ended.id} is {ended.state}: continue it with `ingest job resume {ended.id}`")
        raise typer.Exit(1)


def _preview(settings: "Settings", selection: OrderFilter, sample: int, *, as_json: bool) -> None:
    from ingest.cli.orders.differing_fields import print_fields

    preview = run_interruptible(_fetch_sample(settings, selection, sample))
    if as_json:
        typer.echo(json.dumps({"source": settings.source, "dry_run": True} | msgspec.to_builtins(preview.result())))
        return
    found = "many orders" if preview.total is None else counted(preview.total, "order")
    typer.echo(f"would fetch {found} again; of {preview.fetched:,} fetched now, {preview.changed:,} would change")
    print_fields(preview.fields, typer.echo)
    for failure in preview.failures:
        say(f"{failure.order_id}: {printable(failure.error, 200)}")


async def _fetch_sample(settings: "Settings", selection: OrderFilter, sample: int) -> "RefetchPreview":
    from ingest.cli.terminal.progress import ProgressDisplay
    from ingest.operations.audit import record_read_of
    from ingest.operations.backends import Backends
    from ingest.operations.declared import READ_DOCUMENT
    from ingest.operations.rebuilding.refetch_preview import preview_steps
    from ingest.services.refetch_sample import fetching_orders

    async with fetching_orders(settings, os.environ) as fetch:
        with ProgressDisplay("fetching a sample") as display:
            backends = Backends.of(settings)
            await record_read_of([backends], reader("order refetch --dry-run"), READ_DOCUMENT, selection.as_object())
            async with aclosing(preview_steps(backends, selection, fetch, sample)) as steps:
                async for preview in steps:
                    display.update(preview.fetched, None if preview.total is None else min(preview.total, sample))
    return preview

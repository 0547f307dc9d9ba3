"""`ingest order list`: lists stored orders."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.invocation import backends_of_sources, say
from ingest.cli.options import AsJson, Sources
from ingest.cli.orders.filter_options import selecting
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import printable, printable_json
from ingest.cli.terminal.times import format_age, format_time
from ingest.cli.terminal.width import Table, width_of
from ingest.domain.errors import StoreTooSlow, UserError
from ingest.domain.orders.order_filter import OrderFilter
from ingest.domain.source_name import UNNAMED
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.backends import Backends

_TABLE = Table(("order", "status", "stored", "placed", "total", "customer"), names=1, facts=5)


@selecting
def list_(
    *,
    selection: OrderFilter,
    source: Sources = None,
    limit: Annotated[int, typer.Option(help="List at most N.", metavar="N", min=1)] = 50,
    as_json: AsJson = False,
) -> None:
    """List stored orders by time, status or attribute.

    It changes nothing. The orders of each source are sorted by ID, or with `--stored-between` by the time of their last change.

    Examples:
    `ingest order list --stored-between 2h 1h --source shop-de` lists the orders whose rows changed within an hour.

    `ingest order list --status paid --attribute channel=web` combines filters.

    `ingest order list --customer 17850 --limit 100000 --json | jq -r .order.id` prints the IDs of the orders of a customer. With
    `--json`, each line is a JSON object.

    `ingest migrate --search-indexes` creates indexes that make lists of a large table fast.
    """
    sources = [*backends_of_sources(source).values()]
    try:
        shown, has_more = run_interruptible(_print(sources, selection, limit, as_json=as_json))
    except StoreTooSlow as error:
        raise UserError("the search took too long: run `ingest migrate --search-indexes` once") from error
    if not shown:
        say("no stored order matches")
    if has_more:
        say(f"there are more than these {limit:,}: --limit lists more")


async def _print(
    sources: "Sequence[Backends]", selection: OrderFilter, limit: int, *, as_json: bool
) -> tuple[int, bool]:
    """Print the orders, and return how many there are, and whether more match."""
    import msgspec

    from ingest.operations.stored_orders.order_list import list_orders

    rows: list[tuple[str, ...]] = []
    shown, is_named = 0, any(each.source != UNNAMED for each in sources)
    with standard_output() as stream:
        async with aclosing(list_orders(sources, selection, limit + 1)) as orders:
            async for order in orders:
                if (shown := shown + 1) > limit:
                    break
                if as_json:
                    stream.write(printable_json(msgspec.json.encode(order).decode()) + "\n")
                else:
                    rows.append((order["source"], *_row(order)) if is_named else _row(order))
        if rows:
            table = _TABLE.with_column("source") if is_named else _TABLE
            below = [row[-1] for row in rows]
            stream.writelines(line + "\n" for line in table.lines(rows, below, width_of(stream)))
    return min(shown, limit), shown > limit


def _row(order: Mapping[str, Any]) -> tuple[str, ...]:
    given, row = order["order"], order["row"]
    return (
        printable(given["id"], 128),
        printable(given["status"], 32),
        format_age(row["ingested_at"], datetime.now(UTC)),
        format_time(given["placed_at"]),
        f"{given['total']} {printable(given['currency'], 8)}",
        printable(given["customer_id"] or "", 64),
    )

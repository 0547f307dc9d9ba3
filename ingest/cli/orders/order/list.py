"""`ingest order list`: lists stored orders."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ingest.cli.invocation import backends_of_sources, say
from ingest.cli.listing import Listing, say_more
from ingest.cli.options import AsJson, Sources
from ingest.cli.orders.filter_options import selecting
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import printable, printable_json
from ingest.cli.terminal.times import format_age, format_time
from ingest.cli.terminal.width import width_of
from ingest.domain.errors import StoreTooSlow, UserError
from ingest.domain.orders.order_filter import OrderFilter
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.backends import Backends

_ORDERS: Listing[Mapping[str, Any]] = Listing(
    {
        "order": lambda found: printable(found["order"]["id"], 128),
        "status": lambda found: printable(found["order"]["status"], 32),
        "stored": lambda found: format_age(found["row"]["ingested_at"], datetime.now(UTC)),
        "placed": lambda found: format_time(found["order"]["placed_at"]),
        "total": lambda found: f"{found['order']['total']} {printable(found['order']['currency'], 8)}",
        "customer": lambda found: printable(found["order"]["customer_id"] or "", 64),
    },
    names=1,
    facts=5,
    nothing="no stored order matches",
    as_json=lambda found: printable_json(msgspec.json.encode(found).decode()),
    source=lambda found: str(found["source"]),
)


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
        say(_ORDERS.nothing)
    if has_more:
        say_more(limit)


async def _print(
    sources: "Sequence[Backends]", selection: OrderFilter, limit: int, *, as_json: bool
) -> tuple[int, bool]:
    """Print the orders, and return how many there are, and whether more match."""
    from ingest.operations.stored_orders.order_list import list_orders

    rows: list[Mapping[str, Any]] = []
    shown = 0
    with standard_output() as stream:
        async with aclosing(list_orders(sources, selection, limit + 1)) as orders:
            async for order in orders:
                if (shown := shown + 1) > limit:
                    break
                if as_json:
                    stream.write(_ORDERS.as_json(order) + "\n")
                else:
                    rows.append(order)
        if rows:
            stream.writelines(line + "\n" for line in _ORDERS.lines(rows, width_of(stream)))
    return min(shown, limit), shown > limit

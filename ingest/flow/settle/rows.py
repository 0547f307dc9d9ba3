"""The rows of each delivery, and the results of writing them."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ingest.domain.deliveries.delivery import Delivery, Effect
from ingest.domain.deliveries.result import Finished, Result, ResultKind
from ingest.domain.errors import RowsRefused, TableLocked
from ingest.domain.orders.order_row import OrderRow

_FRESH = {Effect.INSERTED, Effect.CHANGED}


class Item(msgspec.Struct, frozen=True, gc=False):
    """The rows of one delivery, which are stored together.

    Attributes:
        rows: none, one or several.
        size: bytes of the acquired buffer space: of the document, or of the output of the transform.
    """

    delivery: Delivery
    rows: Sequence[OrderRow]
    size: int


class Refusal(msgspec.Struct, frozen=True):
    """An item that was rejected in a separate statement."""

    item: Item
    error: RowsRefused


class Written(msgspec.Struct):
    """The results of one call.

    Attributes:
        stored: committed items.
        effects: the effects of their rows, in order.
        refused: items that were rejected in separate statements.
        locked: items with a row that another session has locked. Another try now would block all others.
        blocked: items that cannot be stored while another session has locked a table, which `blocker` describes.
        untried: items that were rejected or too slow together with others.
        lost: items whose entries other processes have claimed.
        fresh: an item with a row that was inserted or changed, which proves that the table accepts rows.
    """

    stored: list[Item] = msgspec.field(default_factory=list)
    refused: list[Refusal] = msgspec.field(default_factory=list)
    locked: list[Item] = msgspec.field(default_factory=list)
    blocked: list[Item] = msgspec.field(default_factory=list)
    blocker: TableLocked | None = None
    effects: list[Effect] = msgspec.field(default_factory=list)
    untried: list[Item] = msgspec.field(default_factory=list)
    lost: list[Item] = msgspec.field(default_factory=list)
    fresh: Item | None = None


def with_effects(items: Iterable[Item], effects: Sequence[Effect]) -> Iterator[tuple[Item, Sequence[Effect]]]:
    """Return each item with the effects of its rows. `effects` are the effects of all rows, in order."""
    at = 0
    for item in items:
        end = at + len(item.rows)
        yield item, effects[at:end]
        at = end


def fresh_item(items: Iterable[Item], effects: Sequence[Effect]) -> Item | None:
    """An item with a row that was inserted or changed, which proves that the table and its triggers accept rows."""
    return next((item for item, own in with_effects(items, effects) if not _FRESH.isdisjoint(own)), None)


def finished(item: Item, effects: Sequence[Effect]) -> Finished:
    """Return the results of a committed item, by the effects of its rows. Every change is reported at least once."""
    delivery = item.delivery
    announced = delivery.order_id or ""
    results = [
        Result(row.order_id, _kind(effect, delivery), None if row.order_id == announced else announced)
        for row, effect in zip(item.rows, effects, strict=True)
    ]
    return Finished(delivery.entry, tuple(results) or (Result(announced, ResultKind.SKIPPED),))


def _kind(effect: Effect, delivery: Delivery) -> ResultKind:
    # An unchanged row may have been changed by an earlier delivery of its entry, or by a statement whose reply was lost, without a
    # result. It is reported as changed, so that a change may be reported twice.
    is_certain = delivery.count == 1 and delivery.attempt == 1
    return ResultKind((Effect.CHANGED if effect is Effect.UNCHANGED and not is_certain else effect).value)

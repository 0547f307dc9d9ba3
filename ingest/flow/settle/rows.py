"""What is stored: the rows of each delivery, and what became of them."""

from collections.abc import Iterable, Sequence

import msgspec

from ingest.domain.deliveries.delivery import Delivery, Effect
from ingest.domain.errors import RowsRefused
from ingest.domain.orders.order_row import OrderRow

_FRESH = (Effect.INSERTED, Effect.CHANGED)


class Item(msgspec.Struct, frozen=True, gc=False):
    """The rows of one delivery, which are stored together.

    Attributes:
        rows: none, one or several.
        size: bytes for which buffer space is acquired: of its document, or of what user code has made of it.
    """

    delivery: Delivery
    rows: Sequence[OrderRow]
    size: int


class Refusal(msgspec.Struct, frozen=True):
    """An item that was refused alone."""

    item: Item
    error: RowsRefused


class Written(msgspec.Struct):
    """What became of the items of one call.

    Attributes:
        stored: committed.
        effects: what their rows did, in their order.
        refused: each was refused alone.
        locked: somebody else has locked a row of theirs; tried again now, they would keep all others waiting.
        untried: all that is known is that they, or others with them, were refused or too slow.
        lost: others have claimed the entry.
        fresh: one with a row that was inserted or changed: the table accepts rows.
    """

    stored: list[Item] = msgspec.field(default_factory=list)
    refused: list[Refusal] = msgspec.field(default_factory=list)
    locked: list[Item] = msgspec.field(default_factory=list)
    effects: list[Effect] = msgspec.field(default_factory=list)
    untried: list[Item] = msgspec.field(default_factory=list)
    lost: list[Item] = msgspec.field(default_factory=list)
    fresh: Item | None = None


def divided_by_suppression(
    items: Sequence[Item], effects: Sequence[Effect]
) -> tuple[list[Item], list[Effect], list[Item]]:
    """The items of which no row was suppressed, the effects of their rows, and the other items."""
    stored: list[Item] = []
    kept: list[Effect] = []
    suppressed: list[Item] = []
    at = 0
    for item in items:
        own = effects[at : at + len(item.rows)]
        at += len(item.rows)
        if Effect.SUPPRESSED in own:
            suppressed.append(item)
        else:
            stored.append(item)
            kept += own
    return stored, kept, suppressed


def fresh_item(items: Iterable[Item], effects: Sequence[Effect]) -> Item | None:
    """An item with a row that was inserted or changed: only that shows that the table accepts rows, triggers and all."""
    at = 0
    for item in items:
        if any(effect in _FRESH for effect in effects[at : at + len(item.rows)]):
            return item
        at += len(item.rows)
    return None

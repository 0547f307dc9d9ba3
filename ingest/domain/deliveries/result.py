"""What has become of an order, as other programs are told by the results stream."""

from enum import StrEnum

import msgspec

from ingest.domain.deliveries.delivery import EntryRef


class ResultKind(StrEnum):
    """What has become of an order; the first four are an `Effect` of storing it."""

    INSERTED = "inserted"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    ERASED = "erased"
    SKIPPED = "skipped"
    DEAD_LETTERED = "dead_lettered"


class Result(msgspec.Struct, frozen=True, gc=False):
    """One event of the results stream.

    Attributes:
        order_id: the order.
        kind: what has become of it.
        announced_as: the ID that was announced, where a transform has given the order another one.
    """

    order_id: str
    kind: ResultKind
    announced_as: str | None = None


class Finished(msgspec.Struct, frozen=True, gc=False):
    """An entry whose orders are committed.

    Attributes:
        results: what has become of them, at least one.
    """

    entry: EntryRef
    results: tuple[Result, ...]

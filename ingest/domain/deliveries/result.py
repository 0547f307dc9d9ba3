"""The results of orders that are published to other programs in the results stream."""

from enum import StrEnum

import msgspec

from ingest.domain.deliveries.delivery import EntryRef


class ResultKind(StrEnum):
    """The result of an order. The first four are an `Effect` of storing it."""

    INSERTED = "inserted"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    ERASED = "erased"
    SKIPPED = "skipped"
    DEAD_LETTERED = "dead_lettered"


class Result(msgspec.Struct, frozen=True, gc=False):
    """One event of the results stream.

    Attributes:
        announced_as: the ID that was enqueued, if a transform has changed it.
    """

    order_id: str
    kind: ResultKind
    announced_as: str | None = None


class Finished(msgspec.Struct, frozen=True, gc=False):
    """An entry whose orders are committed.

    Attributes:
        results: the results of these orders, at least one.
    """

    entry: EntryRef
    results: tuple[Result, ...]

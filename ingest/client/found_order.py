"""The API's information about one order."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from ingest.client.errors import UnexpectedAnswer
from ingest.domain.orders.order import Order


@dataclass(frozen=True, slots=True)
class FoundOrder:
    """An order, wherever it is.

    Attributes:
        order_id: its ID.
        state: `queued`, `in_flight`, `retrying`, `dead`, `stored` or `erased`; `unknown` if the queue is too long to be searched.
        order: the stored order, or None if it is not stored.
        erased_at: when it was erased, or None if it was not.
        answer: the whole response, such as `ingestion`, with the reason of a retry.
    """

    order_id: str
    state: str
    order: Order | None
    erased_at: datetime | None
    answer: dict[str, Any] = field(repr=False)


class _Ingestion(msgspec.Struct, frozen=True):
    state: str


class _Found(msgspec.Struct, frozen=True):
    order_id: str
    ingestion: _Ingestion
    order: Order | None = None
    erased_at: datetime | None = None


def found_order(answer: dict[str, Any]) -> FoundOrder:
    """The order in a response.

    Raises:
        UnexpectedAnswer: if it contains none.
    """
    try:
        found = msgspec.convert(answer, _Found)
    except msgspec.ValidationError as error:
        raise UnexpectedAnswer(f"the response contains no order: {error}") from None
    return FoundOrder(found.order_id, found.ingestion.state, found.order, found.erased_at, answer)

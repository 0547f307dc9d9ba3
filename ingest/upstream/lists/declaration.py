"""The description of a list of orders in the configuration, and its problems."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

if TYPE_CHECKING:
    from ingest.domain.toml_errors import Keys

LINK, PAGE, OFFSET = "link", "page", "offset"
HEADER = "header:"
"""Begins the name of a header in place of a path."""


class ListProblem(ValueError):
    """A description that cannot be used.

    Attributes:
        problem: the error.
        keys: the location in the table.
    """

    def __init__(self, problem: str, *keys: str | int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.keys: Keys = keys


class ListAmount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A total amount in an element, with the conversions of a mapping.

    Attributes:
        path: of the amount.
        minor_units: decimal places of an amount in minor units, or `currency` or `stripe` for the places of the currency.
        currency: path of the currency.
        negate: whether the sign is changed.
    """

    path: str
    minor_units: Annotated[int, msgspec.Meta(ge=0, le=18)] | Literal["currency", "stripe"] | None = None
    currency: str = ""
    negate: bool = False


class ListDeclaration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A list of orders in the configuration. A path is names of members, separated by dots.

    Attributes:
        url: template with `{since}`, `{until}`, `{cursor}` and `{size}`.
        method: of the requests.
        body: JSON template of a POST, a text or a table.
        items: path of the array in the body. By default, the body itself or its only array.
        id: path of the order ID in an element.
        updated_at: path of the time of the last change in an element. Empty if there is none.
        amount: path of the total amount in an element, or a table with conversions. Empty if there is none.
        next: where the next page is: `link`, `page`, `offset`, or a path in the body. Empty for a list of one page.
        more: path of a boolean that is false on the last page.
        size: elements of a full page.
        total: path of the number of elements on all pages, or `header:` and the name of a header.
        total_pages: path of the number of pages, or a header.
        first_page: number of the first page.
        ascending: whether the list is sorted by the time of the last change, oldest first.
        time: format of the times in requests, in which times of elements are read first.
        zone: time zone of times without one.
        overlap: how far a poll reads again before the last one.
        look_back: how far one poll an hour reads again, for orders that become visible late. 0 for never.
        complete: whether the elements are whole documents.
        remove_prefix: text before the IDs that is removed.
        rate: requests per second, if the API counts those for the list separately. 0 to count them as requests for orders.
        burst: with `rate`, requests that may be sent together after a pause.
    """

    url: str
    method: Literal["GET", "POST"] | None = None
    body: str | dict[str, Any] | None = None
    items: str = ""
    id: str = "id"
    updated_at: str = "updated_at"
    amount: str | ListAmount = ""
    next: str = ""
    more: str = ""
    size: int = 0
    total: str = ""
    total_pages: str = ""
    first_page: int = 1
    ascending: bool = False
    time: str = "iso"
    zone: str = "UTC"
    overlap: str | float = "5m"
    look_back: str | float = 0.0
    complete: bool = False
    remove_prefix: str = ""
    rate: Annotated[float, msgspec.Meta(ge=0, le=1e6)] = 0.0
    burst: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1

    @property
    def is_numbered(self) -> bool:
        """Whether cursors are numbers that count up."""
        return self.next in (PAGE, OFFSET)

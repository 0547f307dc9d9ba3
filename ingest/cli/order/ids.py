"""The IDs of orders as arguments of commands."""

from collections.abc import Sequence
from typing import Annotated

import typer

from ingest.domain.errors import ConfigError
from ingest.domain.orders.order import InvalidOrderId, parse_order_id

Ids = Annotated[list[str], typer.Argument(help="Order ID.", metavar="ID", hidden=True)]


def parse_ids(ids: Sequence[str]) -> list[str]:
    """The IDs, each once.

    Raises:
        ConfigError: if one of them is not an order ID.
    """
    try:
        return list(dict.fromkeys(parse_order_id(order_id) for order_id in ids))
    except InvalidOrderId as error:
        raise ConfigError(str(error)) from error

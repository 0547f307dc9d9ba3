"""Settings of the list of orders of the external API, a part of `Settings`.

`ingest.sources.order_lists` reads and checks the description of a list.
"""

from typing import Annotated

from pydantic import Field

from ingest.settings.types import NotEmpty, Topic


class ListSettings(Topic):
    """The list of orders, and how often it is polled."""

    order_list: NotEmpty | None = Field(
        None,
        repr=False,
        description="Description of the external API's list of orders: a TOML file, or a JSON object (see the table `list` of a source)",
    )
    poll: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] | None = Field(
        None, description="Pause between two readings of that list for changed orders (default: it is not polled)"
    )

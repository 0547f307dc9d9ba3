"""Settings of the list of orders of the external API, a part of `Settings`.

`ingest.sources.order_lists` reads and checks the description of a list.
"""

from typing import Annotated

from pydantic import Field, field_validator

from ingest.settings.types import Duration, NotEmpty, Topic


class ListSettings(Topic):
    """The list of orders, and how often it is polled."""

    order_list: NotEmpty | None = Field(
        None,
        repr=False,
        description="Description of the external API's list of orders: a TOML file, or a JSON object (see the table `list` of a source)",
    )
    poll: Annotated[Duration, Field(ge=0, le=86_400)] | None = Field(
        None,
        description="Pause between two readings of that list for changed orders (0, or by default: it is not polled)",
    )

    @field_validator("poll")
    @classmethod
    def _poll(cls, value: float | None) -> float | None:
        if value is not None and 0 < value < 1:
            raise ValueError("must be at least 1 second, or 0")
        return value

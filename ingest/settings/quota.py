"""Settings of how much the external API is asked for, over all processes; part of `Settings`."""

from typing import Annotated

from pydantic import Field

from ingest.settings.topic import Topic
from ingest.settings.types import KeyPart, OnOff


class QuotaSettings(Topic):
    """The quota, and the limit that adapts to the API."""

    upstream_adaptive: OnOff = Field(
        "off",
        description="on: within INGEST_CONCURRENCY, find how many requests at a time the external API can process",
    )
    upstream_rate: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        0.0, description="Requests per second to the external API over all processes; 0: unlimited"
    )
    upstream_burst: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0,
        description="Requests that may be sent at once after a time with fewer; 0: a hundredth of a second's requests",
    )
    upstream_concurrency: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Requests at a time to the external API over all processes; 0: unlimited"
    )
    upstream_quota: KeyPart | None = Field(
        None, description="Name of the quota, for services that share one; by default the host of the external API"
    )

"""Settings of the rate and concurrency of requests to the external API, a part of `Settings`."""

from typing import Annotated

from pydantic import Field

from ingest.settings.topic import Topic
from ingest.settings.types import KeyPart, OnOff


class QuotaSettings(Topic):
    """The quota, and the limit that adapts to the API."""

    upstream_adaptive: OnOff = Field(
        "off",
        description="on: adapt the concurrency to the external API's capacity, within INGEST_CONCURRENCY",
    )
    upstream_rate: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        0.0, description="Requests per second to the external API over all processes (0: unlimited)"
    )
    upstream_burst: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0,
        description="Requests that may be sent together after a pause (0: the requests of 10 ms)",
    )
    upstream_concurrency: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        0, description="Concurrent requests to the external API over all processes (0: unlimited)"
    )
    upstream_quota: KeyPart | None = Field(
        None, description="Name of the quota, for services that share one (default: the host of the external API)"
    )

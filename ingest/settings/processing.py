"""Settings of what becomes of documents: mapping, transform, results; part of `Settings`."""

import re
from typing import Annotated

from pydantic import Field, field_validator

from ingest.settings.topic import Topic
from ingest.settings.types import OnOff, Seconds

_FUNCTION = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*"


class ProcessingSettings(Topic):
    """From a document to what is stored and told."""

    mapping: Annotated[str, Field(min_length=1)] | None = Field(
        None,
        description="Mapping of the external API's documents to orders: a TOML file, or one of amazon, shopify and woocommerce",
    )
    transform: str | None = Field(
        None, description="Your own function between fetching and storing an order, `package.module:function`"
    )
    transform_processes: Annotated[int, Field(ge=0, le=64)] = Field(
        0, description="Processes that run the transform, for each worker process; 0: it runs in the event loop"
    )
    transform_timeout: Seconds = Field(
        10.0, description="Time limit for one call of the transform: of an async function, or in a process of its own"
    )
    transform_memory: Annotated[int, Field(ge=0, le=2**60)] = Field(
        1024 * 1024 * 1024, description="Memory that a transform process may use, in bytes (Linux); 0: no limit"
    )
    keep_document: OnOff = Field(
        "off", description="Store the raw document with each order, for `ingest remap`: on or off"
    )
    results: OnOff = Field("off", description="Tell what has become of each order, in the results stream: on or off")
    results_age: Seconds = Field(86_400.0, description="How long results are kept")

    @field_validator("transform")
    @classmethod
    def _function(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(_FUNCTION, value):
            raise ValueError("must name a function, such as package.module:function")
        return value

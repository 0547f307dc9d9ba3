"""Settings of the mapping, the transform and the results, a part of `Settings`."""

import re
from typing import Annotated

from pydantic import Field, field_validator

from ingest.settings.types import NotEmpty, OnOff, Seconds, Topic

_FUNCTION = r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*"


class ProcessingSettings(Topic):
    """The processing of documents until they are stored and their results published."""

    mapping: NotEmpty | None = Field(
        None,
        description="Mapping of the external API's documents to orders, the name of a ready-made one or a TOML file",
    )
    transform: str | None = Field(
        None, description="User function called between fetching and storing an order, `package.module:function`"
    )
    transform_processes: Annotated[int, Field(ge=0, le=64)] = Field(
        0, description="Transform processes for each worker process (0: run the transform in the event loop)"
    )
    transform_timeout: Seconds = Field(
        10.0, description="Time limit for one call of the transform, if it is async or runs in a transform process"
    )
    transform_memory: Annotated[int, Field(ge=0, le=2**60)] = Field(
        1024 * 1024 * 1024, description="Memory that a transform process may use, in bytes (only on Linux, 0: no limit)"
    )
    keep_document: OnOff = Field("off", description="on: store the raw document with each order, for `ingest remap`")
    results: OnOff = Field("off", description="on: publish the result of each order in the results stream")
    results_age: Seconds = Field(86_400.0, description="How long results are kept")

    @field_validator("transform")
    @classmethod
    def _function(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(_FUNCTION, value):
            raise ValueError("must name a function, such as package.module:function")
        return value

"""The types of values in responses, from which the OpenAPI document is generated."""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]

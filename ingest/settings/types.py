"""Types that settings share."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

LONGEST = 1e9
"""Seconds of the longest duration, some thirty years: the system's calls cannot wait for ten times as long."""
Seconds = Annotated[float, Field(gt=0, le=LONGEST, allow_inf_nan=False)]
"""A duration."""
Positive = Annotated[int, Field(gt=0)]
"""A number of something that there has to be."""
MemberPath = Annotated[str, Field(pattern=r"^[^.\s\x00-\x1f\"\\]{1,64}(\.[^.\s\x00-\x1f\"\\]{1,64}){0,7}$")]
"""Names of members of a JSON object, separated by dots."""
KeyPart = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
"""What becomes a part of a key in Redis."""


def lower(value: object) -> object:
    """Let a text be written in any case."""
    return value.lower() if isinstance(value, str) else value


def upper(value: object) -> object:
    """As `lower`."""
    return value.upper() if isinstance(value, str) else value


OnOff = Annotated[Literal["on", "off"], BeforeValidator(lower)]
"""A switch."""

"""The base class and the types that the settings of all topics share."""

import ipaddress
import json
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from ingest.domain.durations import parse_duration
from ingest.domain.partitions import MOST_PARTITIONS

_SHORTEST_SECRET = 32
LONGEST = 1e9
"""Seconds of the longest duration, about thirty years. System calls cannot wait for ten times as long."""
Positive = Annotated[int, Field(gt=0)]
"""A number of at least 1."""
NotNegative = Annotated[int, Field(ge=0)]
"""A number of at least 0."""
Concurrency = Annotated[int, Field(gt=0, le=10_000)]
"""A number of orders in flight."""
Partitions = Annotated[int, Field(gt=0, le=MOST_PARTITIONS)]
"""A number of partitions."""
Port = Annotated[int, Field(ge=0, le=65_535)]
"""A port, or 0."""
NotEmpty = Annotated[str, Field(min_length=1)]
"""A text of at least one character."""
MemberPath = Annotated[str, Field(pattern=r"^[^.\s\x00-\x1f\"\\]{1,64}(\.[^.\s\x00-\x1f\"\\]{1,64}){0,7}$")]
"""Names of members of a JSON object, separated by dots."""
KeyPart = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")]
"""A part of a key in Redis."""


def lower(value: object) -> object:
    """Return a text in lower case, and other values unchanged."""
    return value.lower() if isinstance(value, str) else value


def upper(value: object) -> object:
    """Return a text in upper case, and other values unchanged."""
    return value.upper() if isinstance(value, str) else value


def seconds_of(value: object) -> object:
    """Return the seconds of a text, which is a number or a duration such as `5m`, and other values unchanged.

    Raises:
        ValueError: it is another text.
    """
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return parse_duration(value)


def keeping(value: object) -> object:
    """As `seconds_of`, with `off` for 0."""
    return 0.0 if lower(value) == "off" else seconds_of(value)


def check_tables(text: str) -> str:
    """Return the text of a JSON array of objects, which is an array of tables in the sources file.

    Raises:
        ValueError: it is something else. The message does not contain the text.
    """
    try:
        tables = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("must be a JSON array of objects") from None
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ValueError("must be a JSON array of objects")
    return text


def _check_networks(text: str) -> str:
    try:
        for part in split_commas(text):
            ipaddress.ip_network(part, strict=False)
    except ValueError:
        raise ValueError("must be IP addresses or networks, separated by commas") from None
    return text


def _check_scopes(text: str) -> str:
    if not {*split_commas(text)} <= {"read", "personal", "operate", "erase"}:
        raise ValueError("must be one or more of read, personal, operate and erase, separated by commas")
    return text


def split_commas(text: str) -> list[str]:
    """Return the parts of a text between commas, without blanks."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _check_length(secret: SecretStr) -> SecretStr:
    if len(secret.get_secret_value()) < _SHORTEST_SECRET:
        raise ValueError(f"must have at least {_SHORTEST_SECRET} characters")
    return secret


SigningSecret = Annotated[SecretStr, AfterValidator(_check_length)]
"""A secret that signs something."""
Networks = Annotated[str, Field(min_length=1), AfterValidator(_check_networks)]
"""IP addresses or networks, separated by commas."""
Scopes = Annotated[str, Field(min_length=1), AfterValidator(_check_scopes)]
"""Scopes of API keys that the console uses, separated by commas."""
OnOff = Annotated[Literal["on", "off"], BeforeValidator(lower)]
"""A switch."""

Duration = Annotated[float, Field(allow_inf_nan=False), BeforeValidator(seconds_of)]
"""Seconds, or a text with a unit."""
Seconds = Annotated[Duration, Field(gt=0, le=LONGEST)]
"""A duration that is not 0."""
Coalesce = Annotated[Duration, Field(ge=0, le=86_400)]
"""The time within which repeated webhooks are combined."""
Keeping = Annotated[float, Field(ge=0, le=LONGEST, allow_inf_nan=False), BeforeValidator(keeping)]
"""How long something is kept, or 0 if it is not."""


class Topic(BaseSettings):
    """The settings of one topic. Only `Settings` builds a validator, which takes milliseconds."""

    model_config = SettingsConfigDict(defer_build=True)

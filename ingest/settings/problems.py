"""Describes the problems that Pydantic finds in values, without showing a secret."""

from typing import Any

from pydantic.fields import FieldInfo

from ingest.domain.masking import mask_url
from ingest.settings.urls import require_scheme

URLS = ("_url", "_dsn")
"""The ends of the names of settings that contain URLs."""


def problem_of(problem: Any, name: str, field: FieldInfo | None) -> str:
    """Return the problem in a value of the setting, for a message that begins with its name."""
    if problem["type"] == "string_too_short":
        return "is empty: set a value, or remove it"
    message = problem["msg"].removeprefix("Value error, ")
    given = _showable(problem["input"], name, field)
    return f"{message[0].lower()}{message[1:]}" + ("" if given is None else f" (got {given!r})")


def is_secret(field: FieldInfo) -> bool:
    """Return whether the values of a setting are secrets."""
    return "SecretStr" in str(field.annotation)


def _showable(given: object, name: str, field: FieldInfo | None) -> object:
    """Return an invalid value if it may be shown, else None."""
    if field is None or not field.repr or is_secret(field):
        return None
    if not (name.endswith(URLS) and isinstance(given, str)):
        return given
    try:
        require_scheme(given, ("http", "https"), "")
    except ValueError:
        return None  # a text that cannot be parsed may contain a key anywhere
    return mask_url(given)

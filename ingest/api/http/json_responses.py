"""Responses in JSON."""

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

JSON = "application/json"


def json_response(content: Any, status: int = 200) -> web.Response:
    """A response with this content."""
    return web.Response(body=msgspec.json.encode(content), status=status, content_type=JSON)


def as_object(value: Any) -> dict[str, Any]:
    """A dataclass by its fields, with times in UTC."""
    assert is_dataclass(value)  # noqa: S101  only our own types are passed
    return {field.name: _shown(getattr(value, field.name)) for field in fields(value)}


def _shown(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return as_object(value) if is_dataclass(value) else value

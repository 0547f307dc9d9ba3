"""Responses in JSON."""

from typing import Any

import msgspec
from aiohttp import web

JSON = "application/json"


def json_response(content: Any, status: int = 200) -> web.Response:
    """A response with this content."""
    return web.Response(body=msgspec.json.encode(content), status=status, content_type=JSON)

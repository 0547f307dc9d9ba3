"""Describes the sender of a request as the reader of documents, for the audit log."""

from aiohttp import web

from ingest.api.http.routing import Caller
from ingest.operations.audit import Reader


def reader_of(request: web.Request, caller: Caller) -> Reader:
    """Return the sender with the method and the path of the request, without its query."""
    return Reader(caller.name, f"{request.method} {request.path}")

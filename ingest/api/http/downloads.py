"""Sends files part by part, each of which is read when the client has received the one before."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from aiohttp import web

from ingest.api.http.requests import STATE
from ingest.domain.deliveries.partition_trouble import PartitionTrouble


async def download(
    request: web.Request, parts: AsyncGenerator[bytes, None], name: str, content_type: str, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Send a file with further headers, and close `parts`.

    Raises:
        Problem: 503 if too many downloads are open. A file that ends early has no end, so that its
            client detects it.
    """
    state = request[STATE]
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    response = web.StreamResponse(headers={**headers, **disposition})
    response.content_type, response.charset = content_type, "utf-8"
    async with aclosing(parts):
        with state.connection.connections.lasting(state.connection):
            await state.hold_large()
            while request.method != "HEAD" and (part := await anext(parts, None)) is not None:
                state.hold(len(part))
                writer = await response.prepare(request)
                if writer is not None:
                    await state.connection.send(writer, part)
                await state.hold_large()
            await response.prepare(request)
            with state.connection.pace.sending():
                await response.write_eof()
    return response


def partial_file(name: str, file_format: str, missing: Sequence[PartitionTrouble]) -> tuple[str, Mapping[str, str]]:
    """Return the name of a file and its further headers, which name the partitions that it lacks."""
    if not missing:
        return f"{name}.{file_format}", {}
    return f"{name}.incomplete.{file_format}", {"Missing-Partitions": json.dumps([each.queue for each in missing])}

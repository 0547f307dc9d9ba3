"""Keeps the history of a run as files, which `chaos.account` checks.

Each file contains a line of JSON for each event:

- `documents`: the content of an order in the shop from now on, `missing` or `broken`
- `announcements`: a producer announced orders, and got a reply or none, for orders that a replica has or not
- `requests`: a worker sent a request to the API of a shop
- `rows`: PostgreSQL inserted or changed a row
- `final`, `letters`, `unreplicated`: rows, dead letters and entries that a failover lost, after the run
- `faults`: a fault was applied from `at` to `until`

Times are seconds since 1970 by the clock of this machine.
"""

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg

from ingest.domain.deliveries.delivery import DeadReason
from ingest.queue.redis.connection import control_client

if TYPE_CHECKING:
    from chaos.stage import Stage

_REQUEST = re.compile(rb"(?:^|\r\n)(?:GET|POST) (/orders\S*) HTTP/1\.1\r\n")
# PostgreSQL itself writes down each change of a row, in the transaction that makes it.
_ROWS = """
    SELECT source, order_id AS order, extract(epoch FROM version)::float8 AS version,
        extract(epoch FROM before)::float8 AS before, extract(epoch FROM at)::float8 AS at
    FROM witness ORDER BY at
"""
_FINAL = """
    SELECT source, order_id AS order, json_build_array(status, currency, line_count)::text AS content FROM orders
"""


class History:
    """Writes the files of a run to a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder

    def note(self, file: str, **event: Any) -> None:
        """Add an event of this moment, or of the moment `at`."""
        with (self.folder / f"{file}.ndjson").open("a") as lines:
            lines.write(json.dumps({"at": time.time()} | event, default=str) + "\n")

    def note_document(self, source: str, order_id: str, document: bytes | DeadReason) -> None:
        """Add the document that the shop serves from now on, or the reason why it is no order."""
        if isinstance(document, DeadReason):
            content: object = "missing" if document == DeadReason.NOT_FOUND else "broken"
        else:
            values = json.loads(document)
            content = [values["status"], values["currency"], len(values["lines"])]
        self.note("documents", source=source, order=order_id, content=content)

    def note_requests(self, source: str, chunk: bytes) -> None:
        """Add the requests that begin in these bytes of a connection to the API."""
        for found in _REQUEST.finditer(chunk):
            self.note("requests", source=source, path=found[1].decode())

    async def note_end(self, stage: "Stage") -> None:
        """Add the rows, dead letters and lost entries after the run."""
        connection = await asyncpg.connect(stage.postgres.dsn)
        try:
            for row in await connection.fetch(_ROWS):
                self.note("rows", **row)
            for row in await connection.fetch(_FINAL):
                self.note("final", **{**row, "content": json.loads(row["content"])})
        finally:
            await connection.close()
        async with control_client(stage.redis.straight_url) as client:
            for shop in stage.shops:
                for keys in shop.partitions:
                    for _, fields in await client.xrange(keys.dead):
                        name, reason = (
                            fields.get(key, b"").decode(errors="replace") for key in (b"order_id", b"reason")
                        )
                        if reason != "invalid_message":
                            self.note("letters", source=shop.name, order=name, reason=reason)
                    for lane in keys.lanes:
                        for entry in stage.written.lost[lane.stream]:
                            self.note("unreplicated", source=shop.name, order=entry.order)

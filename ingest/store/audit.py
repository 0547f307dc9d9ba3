"""Adds rows to the table `audit_log`, which records manual changes and their actors. Rows are never changed."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any
from uuid import UUID

import msgspec

from ingest.domain.source_name import UNNAMED
from ingest.store.connections.statements import Fetches

INSERT = (
    "INSERT INTO audit_log (operation, phase, actor, action, selection, count, source)"
    " VALUES ($1, $2, $3, $4, $5::text::jsonb, $6::bigint, $7)"
)


class Phase(StrEnum):
    """Whether a row was written before the change, after it, or after its failure."""

    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"


class AuditLog:
    """Adds rows about one source.

    Attributes:
        source: the name of the source.

    Methods raise `StoreUnavailable` when PostgreSQL cannot be used right now. A row may have been added nevertheless.
    """

    def __init__(self, connection: Fetches, source: str = UNNAMED) -> None:
        self._connection = connection
        self.source = source

    async def add(
        self, operation: UUID, phase: Phase, actor: str, action: str, selection: Mapping[str, Any], count: int | None
    ) -> None:
        """Add a row, committed on return.

        Raises:
            StoreRefused: the table does not accept the row.
            RowsRefused: the selection contains a text that the database cannot store.
        """
        arguments = (operation, phase.value, actor, action, msgspec.json.encode(selection).decode(), count)
        await self._connection.fetch(INSERT, *arguments, self.source)

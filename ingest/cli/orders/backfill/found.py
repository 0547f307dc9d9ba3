"""Finds backfills in the database, and shows one as JSON."""

import json
from collections.abc import Sequence

from ingest.cli.terminal.times import format_time
from ingest.domain.errors import UserError
from ingest.domain.operating.backfill import Backfill
from ingest.operations.backends import Backends
from ingest.store.backfills import find_backfill, newest_backfills
from ingest.store.connections.pool import Pool


async def newest(sources: Sequence[Backends], limit: int) -> list[Backfill]:
    """The newest backfills of these sources."""
    async with Pool.open(sources[0].postgres_dsn, size=1) as pool:
        return await newest_backfills(pool, [each.source for each in sources], limit)


async def source_of_job(sources: Sequence[Backends], job: int) -> str:
    """The name of the source of a backfill.

    Raises:
        UserError: none of the sources has it.
    """
    async with Pool.open(sources[0].postgres_dsn, size=1) as pool:
        found = await find_backfill(pool, [each.source for each in sources], job)
    if found is None:
        raise UserError(f"there is no backfill {job}: see `ingest backfill list`")
    return found.source


def as_text(backfill: Backfill) -> str:
    """A backfill as JSON, with times as `--since` takes them."""
    return json.dumps(backfill.as_dict(), default=format_time)

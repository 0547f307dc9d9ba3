"""A process that holds the lock of a token store until it is killed: `python token_holder.py file PATH` or `… postgresql DSN`."""

import asyncio
import sys
from pathlib import Path

from ingest.store.credentials import CredentialRow
from ingest.upstream.access.token_file import TokenFile


async def main() -> None:
    """Mark, report, and wait."""
    _, kind, where = sys.argv
    store = TokenFile(Path(where)) if kind == "file" else CredentialRow(where, "shop-de")
    async with store.lock() as held:
        assert held is not None
        await held.mark(b"marked by another process")
        sys.stdout.write("held\n")
        sys.stdout.flush()
        await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main())

"""Checks what polling has found out about the lists of sources."""

from collections.abc import Sequence
from dataclasses import replace

from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.store.polls import polls_if_available

_OF = Checks(Area.UPSTREAM)
_ADVICE = "correct the clock or the time zone of the shop's database, or set `list.zone`"


async def findings(dsn: str, sources: Sequence[str]) -> list[Finding]:
    """Report lists whose times are behind the clock of the shop. Without PostgreSQL, which other checks report, there is no finding."""
    found = await polls_if_available(dsn, sources)
    return [
        replace(
            _OF.warning(f"times in the list of orders are about {each.behind:,.0f} s behind the shop's clock", _ADVICE),
            source=each.source,
        )
        for each in found.values()
        if each.behind
    ]

"""The numbers and the names of fields on which Python and the Lua scripts have to agree, as Lua."""

from collections.abc import Iterable

from ingest.domain.deliveries.entry_fields import KNOWN, LISTED, OF_DEAD_LETTERS, OF_MOVES, OF_RETRIES

# A released entry counts as idle since 1970. No other entry was idle for this long, about 30 years.
RELEASED_IDLE_MS = 10**12
# How long a move, a batch or a page that was done is remembered, so that the same call sent again after a lost reply does nothing.
RECORD_SECONDS = 600

PRELUDE = f"""\
local released_idle_ms = {RELEASED_IDLE_MS}
local record_seconds = {RECORD_SECONDS}
"""


def _set_of(names: Iterable[bytes]) -> str:
    return "{" + ", ".join(f"{name.decode()} = 1" for name in sorted(names)) + "}"


# For the scripts that name it among their parts.
ENTRY_FIELDS = f"""\
local known_fields = {_set_of(KNOWN)}
local listed_fields = {_set_of(LISTED)}
local fields_of_dead_letters = {_set_of(OF_DEAD_LETTERS | OF_RETRIES)}
local fields_of_moves = {_set_of(OF_MOVES)}
"""

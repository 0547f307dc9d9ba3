"""The numbers on which Python and the Lua scripts have to agree, and the prelude that gives them to each script."""

# An entry that was released counts as idle since 1970. Nothing else has been idle for this long, some 30 years.
RELEASED_IDLE_MS = 10**12
# How long a move, a batch or a page that was done is remembered, so that the same call sent again after a lost reply does nothing.
RECORD_SECONDS = 600

PRELUDE = f"""\
local released_idle_ms = {RELEASED_IDLE_MS}
local record_seconds = {RECORD_SECONDS}
"""

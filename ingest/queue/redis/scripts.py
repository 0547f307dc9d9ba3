"""The Lua scripts, each one atomic step, loaded from their files.

A file names the parts that it needs, `_NAME.lua`, in a line `-- needs: NAME, NAME`. A few scripts have the flag `allow-oom`, because workers
and operators make room with them in a server that is out of memory. They take very little themselves.
"""

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import InvalidResponse, ResponseError

from ingest.domain.deliveries.entry_fields import KNOWN, LISTED, OF_DEAD_LETTERS, OF_MOVES, OF_RETRIES
from ingest.queue.redis.connection import is_out_of_memory, translated

# How long a completed move, batch or page is remembered, so that the same call sent again after a lost reply does nothing.
RECORD_SECONDS = 600

_ABSENT = ("unknown command", "NOPERM", "no permissions")
_NEEDS = re.compile(r"^-- needs: (.+)$", re.MULTILINE)


def load(client: Redis, name: str, *, within: str = "", has_xnack: bool = False) -> AsyncScript:
    """One script on `client`, see `script_text`. Redis is sent its text only when it does not have it."""
    script: AsyncScript = client.register_script(script_text(name, within=within, has_xnack=has_xnack))
    return script


async def has_xnack(client: Redis, key: str) -> bool:
    """Whether the server has `XNACK` (Redis 8.8), and the user may send it.

    Tried on `key`, which does not exist and is not created, because forks count their versions differently. Without it, `XCLAIM`
    releases entries: see `release.lua`.
    """
    with translated():
        try:
            await client.execute_command("XNACK", key, "none", "SILENT", "IDS", 1, "0-1")  # type: ignore[no-untyped-call]  # redis-py leaves it so
        except ResponseError as error:
            # Out of memory, Redis does not check the command.
            if is_out_of_memory(error) or any(text in str(error) for text in _ABSENT):
                return False
            if "NOGROUP" not in str(error):
                raise
            return True
        raise InvalidResponse("a key that does not exist has a group")


@cache
def script_text(name: str, *, within: str = "", has_xnack: bool = False) -> str:
    """A script and the parts that it needs, for a server with or without `XNACK`.

    If `within` names a part, it is a function that the part calls: `combined` for several calls of the script, or `job_step` for a job.
    """
    text = _read(name)
    # Redis reads flags in the first line only.
    flags = text[: text.index("\n") + 1] if text.startswith("#!") else ""
    values = f"local has_xnack, record_seconds = {str(has_xnack).lower()}, {RECORD_SECONDS}\n"
    body = "".join((values, *map(_part, _needed_by(text)), text.removeprefix(flags)))
    return flags + (f"local function part(KEYS, ARGV)\n{body}\nend\n{_part(within)}" if within else body)


def _needed_by(text: str) -> list[str]:
    """The parts that a text needs, each once, and after the parts that it needs itself."""
    match = _NEEDS.search(text)
    names = match[1].split(", ") if match else []
    return [*dict.fromkeys(each for name in names for each in (*_needed_by(_part(name)), name))]


def _part(name: str) -> str:
    return _entry_fields() if name == "entry_fields" else _read(f"_{name}")


def _read(file: str) -> str:
    return (files("ingest.queue") / "lua" / f"{file}.lua").read_text(encoding="utf-8")


def _entry_fields() -> str:
    def set_of(names: Iterable[bytes]) -> str:
        return "{" + ", ".join(f"{name.decode()} = 1" for name in sorted(names)) + "}"

    return f"""\
local known_fields = {set_of(KNOWN)}
local listed_fields = {set_of(LISTED)}
local fields_of_dead_letters = {set_of(OF_DEAD_LETTERS | OF_RETRIES)}
local fields_of_moves = {set_of(OF_MOVES)}
"""

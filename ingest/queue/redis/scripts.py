"""The Lua scripts, each one atomic step, loaded from their files."""

from functools import cache
from importlib.resources import files

import msgspec
from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from ingest.queue.layout.shared_numbers import ENTRY_FIELDS, PRELUDE

# Files that are put before a script, in this order. A part that depends on the server's capabilities is named by its role.
_PARTS = {
    "enqueue": ("now", "padded", "still_waits"),
    "ack": ("released", "held", "padded", "finish"),
    "reschedule": ("now", "released", "padded", "order_of", "owned", "gone", "erased", "finish"),
    "ack_results": ("released", "held", "padded", "results", "finish"),
    "dead_letter": (
        "now",
        "released",
        "padded",
        "order_of",
        "owned",
        "gone",
        "erased",
        "results",
        "finish",
    ),
    "move_due": ("now", "others", "entry_fields", "wide", "order_of", "erased", "waiting_fields", "invalid_waiting"),
    "heartbeat": ("now",),
    "state": ("now",),
    "claim_abandoned": ("now", "released", "standing"),
    "claim_own": ("released", "held"),
    "sweep": ("now", "released", "padded", "standing", "release_counted"),
    "renew": ("released", "held"),
    "release": ("released", "held", "order_of", "gone", "release_uncounted"),
    "leave": ("released",),
    "trim": ("padded",),
    "find_orders": ("released", "padded", "entry_fields", "waiting_fields"),
    "remove_retries": ("order_of", "erased", "waiting_fields"),
    "list_retries": ("entry_fields", "waiting_fields"),
    "scan_retries": ("order_of", "waiting_fields"),
    "list_dead": ("entry_fields", "dead_summary"),
    "look_up_dead": ("entry_fields", "dead_summary"),
    "run_retries": ("now",),
    "dead_letter_retries": ("now", "entry_fields", "wide", "order_of", "erased", "waiting_fields", "invalid_waiting"),
    "replay": ("others", "entry_fields", "wide", "order_of", "erased"),
    "quota_lease": ("now", "quota"),
    "quota_end": ("now", "quota"),
    "quota_pause": ("now",),
}
# Some scripts have to run in a server that is out of memory, so that workers and operators can make room. They take very little.
_FLAGS = {
    "heartbeat": "allow-oom",
    "move_due": "allow-oom",
    "sweep": "allow-oom",
    "state": "no-writes",
    "drained": "no-writes",
    "find_orders": "no-writes",
    "list_retries": "no-writes",
    "scan_retries": "no-writes",
    "list_dead": "no-writes",
    "look_up_dead": "no-writes",
    "run_retries": "allow-oom",
    "dead_letter_retries": "allow-oom",
    "quota_lease": "allow-oom",
    "quota_end": "allow-oom",
    "quota_pause": "allow-oom",
}


class Scripts(msgspec.Struct, frozen=True):
    """All scripts of a consumer, bound to one client. Redis is sent a script's text only when it does not have it."""

    ack: AsyncScript
    ack_results: AsyncScript
    reschedule: AsyncScript
    dead_letter: AsyncScript
    move_due: AsyncScript
    heartbeat: AsyncScript
    claim_abandoned: AsyncScript
    claim_own: AsyncScript
    read_lanes: AsyncScript
    sweep: AsyncScript
    renew: AsyncScript
    release: AsyncScript
    leave: AsyncScript
    remove_consumers: AsyncScript
    trim: AsyncScript

    @classmethod
    def on(cls, client: Redis, *, has_xnack: bool) -> "Scripts":
        """The scripts on `client`."""
        return cls(**{name: load(client, name, has_xnack=has_xnack) for name in cls.__struct_fields__})


def load(client: Redis, name: str, *, has_xnack: bool = False) -> AsyncScript:
    """One script on `client`, with the parts that it uses before it."""
    script: AsyncScript = client.register_script(_text(name, has_xnack=has_xnack))
    return script


@cache
def _text(name: str, *, has_xnack: bool) -> str:
    role = {
        "release_uncounted": "release_uncounted_xnack" if has_xnack else "release_uncounted",
        "release_counted": "release_counted_xnack" if has_xnack else "release_counted",
    }
    folder = files("ingest.queue") / "lua"

    def read(file: str) -> str:
        return (folder / f"{file}.lua").read_text(encoding="utf-8")

    parts = (
        ENTRY_FIELDS if part == "entry_fields" else read(f"_{role.get(part, part)}") for part in _PARTS.get(name, ())
    )
    text = "".join((PRELUDE, *parts, read(name)))
    if name in _FLAGS:
        # Redis reads flags in the first line only, so they stand before the parts.
        text = f"#!lua flags={_FLAGS[name]}\n{text}"
    return text

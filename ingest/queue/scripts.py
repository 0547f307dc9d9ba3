"""The Lua scripts, each one atomic step, loaded from the files beside this one."""

from dataclasses import dataclass, fields
from importlib.resources import files

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from ingest.queue.capabilities import Capabilities

# Files that are put before a script, in this order; what depends on the server's capabilities is named by its role.
_PARTS = {
    "ack": ("finish",),
    "reschedule": ("now", "owned", "finish"),
    "bury": ("now", "owned", "finish"),
    "move_due": ("now",),
    "beat": ("now",),
    "claim_dead": ("now", "standing"),
    "claim_idle": ("now", "standing"),
    "release": ("give_back",),
}
# What has to go on in a server that is out of memory, so that the workers can make room, and takes next to none.
_GO_ON_WHEN_FULL = {"beat", "move_due"}


@dataclass(frozen=True, slots=True)
class Scripts:
    """All scripts of a consumer, bound to one client; Redis is sent a script's text only when it does not know it yet."""

    ack: AsyncScript
    reschedule: AsyncScript
    bury: AsyncScript
    move_due: AsyncScript
    beat: AsyncScript
    claim_dead: AsyncScript
    claim_idle: AsyncScript
    claim_own: AsyncScript
    renew: AsyncScript
    release: AsyncScript
    leave: AsyncScript
    remove_silent: AsyncScript
    trim: AsyncScript

    @classmethod
    def on(cls, client: Redis, capabilities: Capabilities) -> "Scripts":
        """The scripts on `client`."""
        role = {
            "finish": "finish_xackdel" if capabilities.acks_and_deletes else "finish",
            "give_back": "give_back_xnack" if capabilities.gives_back else "give_back",
        }
        names = [field.name for field in fields(cls)]
        return cls(
            **{name: load(client, name, *(role.get(part, part) for part in _PARTS.get(name, ()))) for name in names}
        )


def load(client: Redis, name: str, *parts: str) -> AsyncScript:
    """One script on `client`, with the parts that it uses before it."""
    folder = files(__package__) / "lua"
    text = "".join(
        (folder / f"{file}.lua").read_text(encoding="utf-8") for file in (*(f"_{part}" for part in parts), name)
    )
    if name in _GO_ON_WHEN_FULL:
        text = "#!lua flags=allow-oom\n" + text
    script: AsyncScript = client.register_script(text)
    return script

"""The Lua scripts, each one atomic step, loaded from the files beside this one."""

from dataclasses import dataclass
from importlib.resources import files

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

_FINISHING = {"ack", "reschedule", "bury"}


@dataclass(frozen=True, slots=True)
class Scripts:
    """All scripts, bound to one client; Redis is sent a script's text only when it does not know it yet."""

    ack: AsyncScript
    reschedule: AsyncScript
    bury: AsyncScript
    move_due: AsyncScript
    claim_idle: AsyncScript
    claim_own: AsyncScript
    renew: AsyncScript
    release: AsyncScript
    leave: AsyncScript
    remove_silent: AsyncScript

    @classmethod
    def on(cls, client: Redis) -> "Scripts":
        """The scripts on `client`."""
        return cls(**{name: load(client, name) for name in cls.__slots__})


def load(client: Redis, name: str) -> AsyncScript:
    """One script on `client`."""
    folder = files(__package__) / "lua"
    text = (folder / f"{name}.lua").read_text(encoding="utf-8")
    if name in _FINISHING:
        text = (folder / "_delete_finished.lua").read_text(encoding="utf-8") + text
    script: AsyncScript = client.register_script(text)
    return script

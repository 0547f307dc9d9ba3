"""A call of a script, as one of several."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec
from redis.commands.core import AsyncScript
from redis.exceptions import NoScriptError


class ScriptCall(msgspec.Struct, frozen=True):
    """A script with its keys and arguments."""

    script: AsyncScript
    keys: Sequence[Any]
    arguments: Sequence[Any]

    def by_hash(self) -> tuple[Any, ...]:
        """Return the command for a server that has the script."""
        return "EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.arguments

    def by_text(self) -> tuple[Any, ...]:
        """Return the command for a server that does not have the script."""
        return "EVAL", self.script.script, len(self.keys), *self.keys, *self.arguments


class RunsScripts(ABC):
    """Runs scripts over one connection or several. A server is sent the text of a script only if it does not have it."""

    @abstractmethod
    async def call(self, *parts: Any) -> Any:
        """Send a command and return its reply, as Redis gives it."""

    @abstractmethod
    async def call_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands together, and return their replies in order. An error reply is an exception among them."""

    async def run_all(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run scripts as `call_all` sends commands."""
        found = await self.call_all([call.by_hash() for call in calls])
        if missing := [number for number, reply in enumerate(found) if isinstance(reply, NoScriptError)]:
            sent = await self.call_all([calls[number].by_text() for number in missing])
            for number, reply in zip(missing, sent, strict=True):
                found[number] = reply
        return found

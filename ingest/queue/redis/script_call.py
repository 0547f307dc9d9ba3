"""A call of a script, as one of several."""

from collections.abc import Sequence
from typing import Any

import msgspec
from redis.commands.core import AsyncScript


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

"""The kinds of servers for tests of the queue: the embedded Valkey, and the Redis servers of `make servers`.

They are found once during the collection of tests, so that a test has a name on each server and is never skipped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from servers.get import REDIS, WANTED, version_of
from shipped import redis_users

from ingest.lab.servers import ValkeyServer


@dataclass(frozen=True)
class Kind:
    """One server program and its version."""

    product: str
    version: str
    binary: Path

    @property
    def name(self) -> str:
        """The name in the names of tests, which is the product with two numbers."""
        return f"{self.product}-{'.'.join(self.version.split('.')[:2])}"

    def is_redis_since(self, *version: int) -> bool:
        """Whether it is a Redis of at least that version."""
        return self.product == "redis" and tuple(map(int, self.version.split("."))) >= version

    @property
    def knows_setinfo(self) -> bool:
        """Whether it supports `CLIENT SETINFO`, which Redis added in 7.2."""
        return self.product == "valkey" or self.is_redis_since(7, 2)

    @property
    def speaks_tls(self) -> bool:
        """Whether it is built with TLS, like the distribution's, in contrast to the embedded Valkey and our Redis 8."""
        return self.is_redis_since(7) and not self.is_redis_since(8)

    @property
    def users(self) -> Mapping[str, str]:
        """The lines of its configuration that create our users."""
        return redis_users(knows_setinfo=self.knows_setinfo)

    def server(self, folder: Path, **options: str) -> ValkeyServer:
        """A server of this kind with our users, not started yet. Options are lines of its configuration, with `_` for `-`."""
        lines = {**self.users, **{name.replace("_", "-"): value for name, value in options.items()}}
        return ValkeyServer(folder, binary=self.binary, options=lines)


def _valkey() -> Kind:
    binary = ValkeyServer(Path())._binary
    return Kind("valkey", version_of(binary), binary)


KINDS = [
    _valkey(),
    *(Kind("redis", version_of(wanted.binary), wanted.binary) for wanted in REDIS if wanted.is_there()),
]
MISSING = [wanted.name for wanted in WANTED if not wanted.is_there()]
WITH_XNACK = [kind for kind in KINDS if kind.is_redis_since(8, 8)]


def summary() -> str:
    """Which servers the tests of the queue run on, and which of all are missing."""
    found = ", ".join(f"{kind.product} {kind.version}" for kind in KINDS)
    return f"{found}; missing: {', '.join(MISSING)} (make servers)" if MISSING else found

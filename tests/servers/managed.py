"""A Redis like in managed services, with one endpoint in cluster mode, no administration and another eviction policy.

| what | as in |
|---|---|
| cluster mode, all slots on one node: keys of one command share a slot, scripts name all their keys | ElastiCache Serverless, MemoryDB |
| no `CONFIG`, `ACL`, `MONITOR`, `SAVE`, `DEBUG`, `WAIT` … : NOPERM | all of them |
| commands newer than Redis 7.0: NOPERM | proxies with a list of commands |
| `maxmemory-policy volatile-lru` | all of them, by default |
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Self

import redis
from servers.kinds import Kind

from ingest.lab.servers import ValkeyServer
from ingest.lab.servers.server import free_port

USER, PASSWORD = "app", "managed"
_SLOTS = 16_384
# Commands that the server does not support are left out.
_DENIED = (
    "acl", "bgrewriteaof", "bgsave", "client", "cluster", "command", "config",
    "debug", "failover", "latency", "migrate", "module", "monitor", "object", "psync", "replicaof", "save", "shutdown", "slaveof", "slowlog",
    "sync", "wait", "waitaof", "xackdel", "xdelex", "xnack", "xcfgset",
)  # fmt: skip


class Managed:
    """The server and the largest command that it received.

    Attributes:
        server: the running server.
        most: the maximum number of arguments of a command, including commands of scripts, and the command's beginning.
    """

    def __init__(self, server: ValkeyServer, scheme: str) -> None:
        self.server = server
        self._scheme = scheme
        self.most: tuple[int, str] = (0, "")
        self._admin = redis.Redis.from_url(server.url)

    @property
    def url(self) -> str:
        """Where the service connects."""
        return f"{self._scheme}://{USER}:{PASSWORD}@127.0.0.1:{self.server.port}/0"

    @classmethod
    @contextmanager
    def open(cls, kind: Kind, folder: Path, scheme: str = "redis") -> Iterator[Self]:
        """Start one, for clients of a single Redis or, with `redis+cluster`, of a cluster."""
        options = {"cluster_enabled": "yes", "cluster_port": str(free_port()), "maxmemory": "200mb"}
        with kind.server(folder, maxmemory_policy="volatile-lru", **options) as server:
            managed = cls(server, scheme)
            managed._make_managed()
            watching = Thread(target=managed._watch, name="monitor", daemon=True)
            watching.start()
            try:
                yield managed
            finally:
                server.kill()
                watching.join(10)
                managed._admin.close()

    def _make_managed(self) -> None:
        self._admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, _SLOTS - 1)
        self._admin.execute_command("ACL", "SETUSER", USER, "on", f">{PASSWORD}", "~*", "&*", "+@all")
        for name in _DENIED:
            with suppress(redis.ResponseError):  # not known to this server
                self._admin.execute_command("ACL", "SETUSER", USER, f"-{name}")
        # By which clients of a cluster find its nodes.
        self._admin.execute_command("ACL", "SETUSER", USER, "+cluster|slots")

    def _watch(self) -> None:
        connection = redis.Connection(port=self.server.port, password=self.server.password, socket_timeout=None)
        try:
            connection.connect()
            connection.send_command("MONITOR")
            while True:
                line = connection.read_response()
                said = line.decode(errors="replace") if isinstance(line, bytes) else str(line)
                self.most = max(self.most, (said.count('" "') + 1, said[:120]))
        except redis.RedisError:
            connection.disconnect()

"""The service's accounts in Redis and PostgreSQL from deploy/, and their denied actions."""

import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from redis import Redis
from redis.exceptions import NoPermissionError
from servers.kinds import Kind
from shipped import rules_of

import ingest.queue
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.scripts import script_text

# The queue that users.acl is written for.
QUEUE = "orders"
PASSWORD = "w/rker p@ss"

FORBIDDEN = [
    "FLUSHALL",
    "FLUSHDB",
    "CONFIG GET *",
    "CONFIG SET maxmemory-policy allkeys-lru",
    "KEYS *",
    "SCAN 0",
    "SHUTDOWN NOSAVE",
    "SAVE",
    "REPLICAOF NO ONE",
    "MONITOR",
    "ACL LIST",
    "CLIENT LIST",
    "SCRIPT FLUSH",
    "SUBSCRIBE x",
    "GET other",
    "XADD ingest:{other}:stream * order_id a",
    "XADD ingest:{orders2}:stream * order_id a",
    "DEL ingest:{orders}:stream",
    "DEL ingest:{orders/shop-de}:stream",
    "RENAME ingest:{orders}:stream other",
    "SET ingest:{orders}:stream x PX 1",
    "SET ingest:{orders}:dead x PX 1",
    "SET ingest:{orders/shop-de}:stream x PX 1",
    "SET ingest:{orders/shop-de}:dead x PX 1",
    "XSETID ingest:{orders}:stream 9-9",
    "XGROUP DESTROY ingest:{orders}:stream ingest",
]
# What every account may do with the queue of a source.
OF_A_SOURCE = [
    "XADD ingest:{orders/shop-de}:stream * order_id a",
    "XADD ingest:{orders/shop-de}:express * order_id a",
    "SET ingest:{orders/shop-de}:receipt:x 1 PX 1000",
    "XLEN ingest:{orders/shop-de}:stream",
]


def create_user(url: str, kind: Kind, user: str) -> str:
    """Create one of our users on a server, for the queue `orders`, and return the URL without the password."""
    parts = urlsplit(url)
    with Redis.from_url(url) as admin:
        admin.execute_command(
            "ACL", "SETUSER", user, "reset", *rules_of(user, PASSWORD, knows_setinfo=kind.knows_setinfo)
        )
    return f"redis://{user}@{parts.hostname}:{parts.port}/0"


def permitted(url: str, user: str, commands: Iterable[str]) -> list[str]:
    """Which of these commands a user may send."""

    def is_refused(command: str) -> bool:
        try:
            client.execute_command(*command.split())
        except NoPermissionError:
            return True
        return False

    with Redis.from_url(url, username=user, password=PASSWORD) as client:
        return [command for command in commands if not is_refused(command)]


def script_names() -> set[str]:
    """The names of all scripts."""
    files = (Path(ingest.queue.__file__).parent / "lua").glob("[!_]*.lua")
    return {file.stem for file in files}


def refused_in_scripts(url: str, user: str, names: Iterable[str]) -> list[list[str]]:
    """The commands of these scripts that the server supports and the user may not send.

    Args:
        url: URL with all rights.
        user: an existing user.
        names: names of our scripts.
    """
    texts = [script_text(name, has_xnack=True) for name in names]
    called = {match for text in texts for match in re.findall(r"redis\.p?call\('([A-Z]+)'(?:, '([A-Z]+)')?", text)}
    with Redis.from_url(url, decode_responses=True) as admin:
        admin.set_response_callback("COMMAND", lambda reply, **_: reply)  # as it comes
        commands = [[name, second] if name in {"XGROUP", "XINFO"} else [name] for name, second in sorted(called)]
        return [words for words in commands if not _is_allowed(admin, user, words)]


def _is_allowed(admin: Redis, user: str, words: list[str]) -> bool:
    [about] = admin.execute_command("COMMAND", "INFO", "|".join(words))
    if about is None:
        return True  # newer than this server
    keys = Keys.of(QUEUE)
    # Only records are set.
    key = f"{keys.records}a" if words == ["SET"] else keys.stream
    arguments = [key] * (abs(about[1]) - len(words))
    return bool(admin.execute_command("ACL", "DRYRUN", user, *words, *arguments) == "OK")

"""The accounts of Redis that deploy/ gives to the service, and what none of them may do."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from redis import Redis
from redis.exceptions import NoPermissionError
from servers.kinds import Kind

# The queue that users.acl is written for.
QUEUE = "orders"
PASSWORD = "w/rker p@ss"
USERS = Path(__file__).parents[2] / "deploy" / "redis" / "users.acl"
# What a Redis before 7.2 does not know.
_SINCE_7_2 = {"+client|setinfo", "+waitaof"}

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
    "DEL ingest:{orders}:stream",
    "RENAME ingest:{orders}:stream other",
    "XSETID ingest:{orders}:stream 9-9",
    "XGROUP DESTROY ingest:{orders}:stream ingest",
]


def rules_of(user: str) -> list[str]:
    """A user's rules in users.acl, its lines joined and its password's hash put in, as start.sh does."""
    lines = [line for line in USERS.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    [rules] = re.findall(rf"^user {user} (.*)$", joined, re.MULTILINE)
    return re.sub(r"@\w+_PASSWORD@", hashlib.sha256(PASSWORD.encode()).hexdigest(), rules).split()


def create_user(url: str, kind: Kind, user: str) -> str:
    """Give a server one of our users; returns its URL, without the password."""
    parts = urlsplit(url)
    rules = [rule for rule in rules_of(user) if rule not in _SINCE_7_2 or kind.knows_setinfo]
    with Redis.from_url(url) as admin:
        admin.execute_command("ACL", "SETUSER", user, "reset", *rules)
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

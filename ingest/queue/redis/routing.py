"""The key by which a command is routed to a node of a cluster."""

from collections.abc import Sequence
from typing import Any

# How often a command follows to another node. A slot that moves does so once or twice.
MOST_REDIRECTIONS = 5

# Commands that concern a server, by their first word.
_WITHOUT_KEY = {
    "ACL", "BGREWRITEAOF", "BGSAVE", "CLIENT", "CLUSTER", "COMMAND", "CONFIG", "DBSIZE", "DEBUG", "FLUSHALL", "FLUSHDB", "FUNCTION",
    "HELLO", "INFO", "LASTSAVE", "LATENCY", "LOLWUT", "MODULE", "PING", "ROLE", "SAVE", "SCAN", "SCRIPT", "SHUTDOWN", "SLOWLOG", "TIME",
    "WAIT", "WAITAOF",
}  # fmt: skip
# Commands whose second word is another command, which the key follows.
_WITH_SUBCOMMAND = {"MEMORY", "OBJECT", "XGROUP", "XINFO"}
_SCRIPTS = {"EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO"}
_READS = {"XREAD", "XREADGROUP"}


def first_key(command: Sequence[Any]) -> str | bytes | None:
    """Return the first key of a command, or None if it has none and concerns a server.

    redis-py passes the two words of some commands as one.
    """
    words = _text(command[0]).upper().split()
    name = words[0]
    if name in _WITHOUT_KEY or (name in _SCRIPTS and not int(command[2])):
        return None
    if name in _SCRIPTS:
        position = 3
    elif name in _READS:
        position = _after_streams(command)
    else:
        position = 2 if name in _WITH_SUBCOMMAND and len(words) == 1 else 1
    key: str | bytes = command[position]
    return key


def _after_streams(command: Sequence[Any]) -> int:
    # Behind the names of the group and the consumer, which may be called so as well.
    start = 4 if _text(command[0]).upper() == "XREADGROUP" else 1
    return next(at for at in range(start, len(command)) if _text(command[at]).upper() == "STREAMS") + 1


def _text(word: Any) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)

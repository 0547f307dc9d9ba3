"""Names the entries that replication lost. Each server's append-only file is read while the server writes it.

After a failover, an entry that only the former primary has written is lost. This is known without the service and without
reading its queues, so that a loss by the service cannot pass for a loss by replication.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader

from ingest.lab.servers import ValkeyServer

_FOLDER = "appendonlydir"
OPTIONS = {
    "appendonly": "yes",
    "appendfsync": "always",
    "appenddirname": f'"{_FOLDER}"',
    # A file is then replaced only when a server copies all data from another one.
    "auto-aof-rewrite-percentage": "0",
}
"""Options of a server whose file is read. Redis' own defaults otherwise."""

# A move from the retry set keeps this field. The entry is in the retry set again if the move is lost.
_OF_A_MOVE = b"enqueued_at"


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry as a producer has written it.

    Attributes:
        order: the text of its field `order_id`, or an empty text.
    """

    stream: bytes
    number: bytes
    order: str


@dataclass(slots=True)
class _File:
    """An open file, which can be read to its end even when the server has removed it."""

    reader: BufferedReader
    rest: bytes = b""

    def follow_cut(self) -> None:
        """Continue where the file ends if a power failure or a full disk has cut it."""
        cut = self.reader.tell() - os.fstat(self.reader.fileno()).st_size
        if cut > 0:
            self.reader.seek(-cut, os.SEEK_CUR)
            self.rest = self.rest[:-cut]


class Written:
    """The entries that each server has written.

    Attributes:
        lost: entries that were lost, by their stream.
    """

    def __init__(self) -> None:
        self._files: dict[tuple[ValkeyServer, int], _File] = {}
        self._writers: dict[Entry, set[ValkeyServer]] = defaultdict(set)
        self.lost: dict[str, list[Entry]] = defaultdict(list)

    def read(self, servers: Sequence[ValkeyServer]) -> frozenset[Entry]:
        """Read the new commands of the servers since the last call, and return all entries that are not decided."""
        for server in servers:
            for path in (server.directory / _FOLDER).glob("*.incr*"):
                with suppress(FileNotFoundError):
                    number = path.stat().st_ino
                    if (server, number) not in self._files:
                        self._files[server, number] = _File(path.open("rb"))
        for (server, _), file in self._files.items():
            file.follow_cut()
            commands, file.rest = _commands(file.rest + file.reader.read())
            for entry in self._entries(commands):
                self._writers[entry].add(server)
        return frozenset(self._writers)

    def decide(self, entries: Collection[Entry], primaries: Collection[ValkeyServer]) -> None:
        """Decide which of the entries are lost. Everything that these primaries had when the entries were read is on their replicas."""
        for entry in entries:
            if self._writers.pop(entry).isdisjoint(primaries):
                self.lost[entry.stream.decode()].append(entry)

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.reader.close()

    def _entries(self, commands: Sequence[Sequence[bytes]]) -> Iterator[Entry]:
        for name, *arguments in commands:
            if name.upper() != b"XADD":
                continue
            stream, number, *fields = arguments
            values = dict(zip(fields[::2], fields[1::2], strict=False))
            if stream.endswith(b":stream") or (stream.endswith(b":express") and _OF_A_MOVE not in values):
                yield Entry(stream, number, values.get(b"order_id", b"").decode(errors="replace"))


def _commands(content: bytes) -> tuple[list[list[bytes]], bytes]:
    """The complete commands in a part of a file, and the rest. Lines that begin with `#` are the server's annotations."""
    commands, at = list[list[bytes]](), 0
    while at < len(content):
        end = content.find(b"\r\n", at)
        if end < 0:
            break
        if content[at : at + 1] == b"#":
            at = end + 2
            continue
        command, position = list[bytes](), end + 2
        for _ in range(int(content[at + 1 : end])):
            end = content.find(b"\r\n", position)
            if end < 0:
                return commands, content[at:]
            start = end + 2
            position = start + int(content[position + 1 : end]) + 2
            if position > len(content):
                return commands, content[at:]
            command.append(content[start : position - 2])
        commands.append(command)
        at = position
    return commands, content[at:]

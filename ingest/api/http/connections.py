"""The connections of one process, and the shares of them that one caller can keep open.

When all are in use, live pages are closed first, because browsers open them again, then idle and slow connections.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from aiohttp import web

from ingest.api.http.connection import Connection
from ingest.api.http.memory_budget import MemoryBudget, RequestState
from ingest.api.http.problems import too_busy
from ingest.api.http.shortage import Shortage
from ingest.flow.waiting import first_of

# The connections that are searched for an idle one when there are too many.
_SEARCHED = 1024
# The most live pages and downloads, unless a quarter of the connections is less, and the most of one caller.
_LASTING = 256
_LASTING_SHARE = 1 / 4
_LASTING_OF_ONE = 1 / 4
# The most connections on which one caller may have a request.
_MOST_OF_ONE = 1 / 2


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of one process.

    Attributes:
        connections: The most connections. For a further one, another one is closed. If none can be closed, the new one is rejected.
        idle: Seconds between two requests of a connection.
        header: Seconds for the header of a request, from its first byte.
    """

    connections: int
    idle: float
    header: float


class Connections:
    """The connections of one process. The event loop calls it for each new one.

    Args:
        server: Handles the requests.
        limits: The limits of each process.
        memory: The memory of requests and responses.
        unreadable: Counts data that is not a request.
        options: The options of aiohttp's protocol.
    """

    def __init__(
        self,
        server: web.Server,
        limits: ConnectionLimits,
        memory: MemoryBudget,
        unreadable: Callable[[], None],
        **options: Any,
    ) -> None:
        self.limits = limits
        self.unreadable = unreadable
        self._server = server
        self._memory = memory
        self._options = {"loop": asyncio.get_running_loop(), "keepalive_timeout": limits.idle, **options}
        # Those that were searched last come last.
        self._open: OrderedDict[Connection, None] = OrderedDict()
        self._none_left = asyncio.Event()
        # The callers of the open requests, and of the responses that last, by connection. They are empty while unknown.
        self._callers: dict[Connection, str] = {}
        self._requests: Counter[str] = Counter()
        self._lasting: dict[Connection, str] = {}
        self._live: dict[Connection, str] = {}
        self._most_of_one = max(1, int(limits.connections * _MOST_OF_ONE))
        self._most_lasting = max(1, min(_LASTING, int(limits.connections * _LASTING_SHARE)))
        self._full = Shortage("connections")
        self._lasting_full = Shortage("lasting responses")

    def __call__(self) -> Connection:
        """A connection for the transport that has just been accepted."""
        return Connection(self._server, self, **self._options)

    def add(self, connection: Connection) -> bool:
        """Whether there is room for one more connection. It closes another one if that makes room."""
        if len(self._open) >= self.limits.connections and not self._close_one():
            self._full.note("rejected", self._requests)
            return False
        self._open[connection] = None
        return True

    def remove(self, connection: Connection) -> None:
        """A connection has ended."""
        self._open.pop(connection, None)
        if not self._open:
            self._none_left.set()

    def state_of(self, connection: Connection) -> RequestState:
        """The state of a new request."""
        return RequestState(connection, self._memory)

    def begin(self, connection: Connection) -> None:
        """A request of an unknown caller begins."""
        self._callers[connection] = ""
        self._requests[""] += 1

    def identify(self, connection: Connection, caller: str) -> None:
        """The caller of the request is known.

        Raises:
            Problem: 503 if it has too many open requests.
        """
        if self._requests[caller] >= self._most_of_one:
            self._full.note("rejected", self._requests)
            raise too_busy("this key has too many open requests, try again")
        self.end(connection)
        self._callers[connection] = caller
        self._requests[caller] += 1

    def end(self, connection: Connection) -> None:
        """The request has ended."""
        caller = self._callers.pop(connection)
        self._requests[caller] -= 1
        if not self._requests[caller]:
            del self._requests[caller]

    @contextmanager
    def lasting(self, connection: Connection, *, is_live: bool = False) -> Iterator[None]:
        """The response lasts as long as the block. A live one is opened again by its client when it is closed.

        Raises:
            Problem: 503 if there are too many such responses, or the caller has too many of them.
        """
        caller, held = self._callers[connection], Counter(self._lasting.values())
        if held.total() >= self._most_lasting or held[caller] >= max(1, int(self._most_lasting * _LASTING_OF_ONE)):
            self._lasting_full.note("rejected", held)
            raise too_busy("too many live pages and downloads are open, close some of them")
        self._lasting[connection] = caller
        if is_live:
            self._live[connection] = caller
        try:
            yield
        finally:
            del self._lasting[connection]
            self._live.pop(connection, None)

    async def finish(self, overdue: asyncio.Event) -> int:
        """Close idle connections, wait until the others have ended or `overdue` is set, and return how many are left.

        The others end with their response, or with their header's time limit.
        """
        for connection in list(self._open):
            if connection.is_idle:
                connection.force_close()
        if self._open:
            self._none_left.clear()
            await first_of([], self._none_left, overdue)
        return len(self._open)

    def _close_one(self) -> bool:
        if (found := self._closable()) is None:
            return False
        if not found.is_idle:
            self._full.note("ended", self._requests)
        self._live.pop(found, None)
        del self._open[found]
        found.abort()
        return True

    def _closable(self) -> Connection | None:
        """The oldest live page of the caller with most of them, or else an idle or slow connection."""
        for caller, _ in Counter(self._live.values()).most_common(1):
            return next(each for each, of in self._live.items() if of == caller)
        for connection in [*islice(self._open, _SEARCHED)]:
            # Busy ones are searched again only after all others, so that many of them do not hide the idle ones.
            self._open.move_to_end(connection)
            if connection.is_idle or connection.is_slow:
                return connection
        return None

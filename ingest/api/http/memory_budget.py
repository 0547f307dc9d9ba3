"""The memory that callers can make one process hold: bodies of requests, and responses until the last byte has left the process.

A body takes memory as it arrives, not as it is announced. A response takes it before it is computed if it contains documents, and
afterwards as large as it is. Callers who are admitted by their key come first, and a quarter of the memory is reserved for them. One of
them can hold half of it.

When memory is short, requests are ended whose clients send or read slowly. If a caller has used up its half, these are its own requests.
Otherwise, the first are requests of callers who are not admitted yet, such as senders of webhooks, whose signature is checked when the
body is complete.
"""

import asyncio
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import islice
from weakref import WeakValueDictionary

from ingest.api.http.connection import Connection
from ingest.api.http.problems import Problem, too_busy
from ingest.api.http.shortage import Shortage
from ingest.domain.deliveries.announcement import DOCUMENT_LIMIT
from ingest.telemetry.shared_metrics import Counter as CounterMetric

# The share that only admitted callers may use, and the most that one of them may.
_RESERVED = 1 / 4
_MOST_OF_ONE = 1 / 2
# While a response with a document is computed. By default, a key can have six of them, which need up to 25 MB each for a moment.
_LARGE = DOCUMENT_LIMIT
# They leave this share to small requests of the same caller.
_SPARE = 1 / 8
# Seconds that a request waits for this memory, and between two looks for requests that have become slow.
_WAIT = 10.0
_LOOK_EVERY = 0.25
# The requests of a caller that are searched for slow ones.
_SEARCHED = 256


@dataclass(slots=True, eq=False)
class RequestState:
    """The state of a request from its header to the end of its response.

    Attributes:
        connection: The client's.
        memory: The memory of the process.
        held: Bytes that the request holds.
        caller: The name of the key that admits it, or empty while the caller is unknown.
    """

    connection: Connection
    memory: "MemoryBudget"
    held: int = 0
    caller: str = ""

    def identify(self, caller: str) -> None:
        """Count the request for its caller from now on, unless it is still unknown.

        Raises:
            Problem: 503 if the caller would use too many connections or too much memory.
        """
        if caller:
            self.connection.connections.identify(self.connection, caller)
            self.memory.identify(self, caller)

    def receiving(self) -> AbstractContextManager[None]:
        """Wait for the client to send in this block.

        Raises:
            ConnectionResetError: The client has disconnected.
        """
        if self.connection.transport is None:
            raise ConnectionResetError
        return self.connection.pace.receiving()

    def hold(self, size: int) -> None:
        """Hold exactly this many bytes from now on.

        Raises:
            Problem: 503 if there is not enough memory. Then the request holds as much as before.
        """
        self.memory.hold(self, size)

    async def hold_large(self) -> None:
        """Wait for the memory that a response with documents needs while it is computed.

        Raises:
            Problem: 503 if there has not been enough in time.
            ConnectionResetError: The client has disconnected.
        """
        await self.memory.hold_large(self)


class MemoryBudget:
    """The memory of one process.

    Args:
        size: Bytes.
        rejected: Counts requests that were ended (`slow`) or rejected (`busy`) because memory was short.
    """

    def __init__(self, size: int, rejected: Mapping[str, CounterMetric] | None = None) -> None:
        self._free = size
        self._reserved = int(size * _RESERVED)
        self._most_of_one = int(size * _MOST_OF_ONE)
        self._spare = int(size * _SPARE)
        self._of_callers: Counter[str] = Counter()
        # By caller. Those that were searched last come last.
        self._holding: defaultdict[str, OrderedDict[RequestState, None]] = defaultdict(OrderedDict)
        self._rejected = rejected or {}
        self._shortage = Shortage("memory")
        # Large requests of one caller wait in line.
        self._lines: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._released = asyncio.Event()

    def identify(self, request: RequestState, caller: str) -> None:
        """Count the memory of a request for its caller. See `RequestState.identify`."""
        held = request.held
        self._note(request, 0)
        request.caller = caller
        self.hold(request, held)

    def hold(self, request: RequestState, size: int) -> None:
        """See `RequestState.hold`."""
        if size == request.held:
            return
        if not self._make_room(request, size):
            raise self._too_little()
        self._note(request, size)

    async def hold_large(self, request: RequestState) -> None:
        """See `RequestState.hold_large`."""
        size = min(_LARGE, self._spare)
        line = self._lines.setdefault(request.caller, asyncio.Lock())
        try:
            async with asyncio.timeout(_WAIT), line:
                while not self._make_room(request, size, self._spare):
                    self._released.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_EVERY):
                            await self._released.wait()
                    if request.connection.transport is None:
                        raise ConnectionResetError
                self._note(request, size)
        except TimeoutError:
            raise self._too_little() from None

    def _note(self, request: RequestState, size: int) -> None:
        more = size - request.held
        self._free -= more
        request.held = size
        self._of_callers[request.caller] += more
        holding = self._holding[request.caller]
        if size:
            holding[request] = None
        else:
            holding.pop(request, None)
        if not holding:
            del self._holding[request.caller], self._of_callers[request.caller]
        if more < 0:
            self._released.set()

    def _make_room(self, request: RequestState, size: int, spare: int = 0) -> bool:
        """Return whether a request may hold so much, after ending slow requests if it could not. Some of it is left over."""
        more, caller = size - request.held, request.caller
        if more <= 0:
            return True
        own = self._of_callers[caller] + more + spare - self._most_of_one
        if caller and own > 0 and not self._end_slow(request, own, [caller]):
            return False
        excess = more - self._free + (0 if caller else self._reserved)
        return excess <= 0 or self._end_slow(request, excess, sorted(self._holding))

    def _end_slow(self, request: RequestState, excess: int, callers: Iterable[str]) -> bool:
        """End other slow requests of these callers that hold so much together, and return whether there were enough."""
        for caller in callers:
            holding = self._holding.get(caller, OrderedDict())
            for other in [*islice(holding, _SEARCHED)]:
                holding.move_to_end(other)
                if other is not request and other.connection.is_slow:
                    excess -= other.held
                    self._end(other)
                    if excess <= 0:
                        return True
        return False

    def _end(self, request: RequestState) -> None:
        self._count("slow", "ended")
        self._note(request, 0)
        detail = "the client sends or reads too slowly while others wait for memory"
        request.connection.drop(Problem(408, "body_too_slow", detail))

    def _too_little(self) -> Problem:
        self._count("busy", "rejected")
        return too_busy("too much memory is in use for requests and responses, try again")

    def _count(self, reason: str, result: str) -> None:
        if reason in self._rejected:
            self._rejected[reason].inc()
        self._shortage.note(result, self._of_callers)

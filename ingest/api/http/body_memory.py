"""Memory for the bodies that are being received, and who gets it when there is not enough.

A body takes memory as it arrives, not as it is announced. Callers who are admitted by their key come first, and a quarter of the
memory is reserved for them. When no memory is left, slow requests are ended, first the requests of callers who are not admitted yet,
such as senders of webhooks, whose signature is checked when the body is complete.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ingest.api.http.connection import Connection
from ingest.api.http.log_limit import LogLimit
from ingest.api.http.problems import Problem
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter as CounterMetric

_log = get_logger("api")
# The share that only admitted callers may use, and the most that one of them may.
_RESERVED = 1 / 4
_MOST_OF_ONE = 1 / 2
# Seconds between two log lines.
_LOG_EVERY = 10.0


@dataclass(slots=True, eq=False)
class RequestState:
    """The state of a request while it is processed.

    Attributes:
        connection: The client's.
        taken: Bytes of memory for its body.
        caller: The name of the key that admits it, or empty while the caller is unknown.
    """

    connection: Connection
    taken: int = 0
    caller: str = ""


class BodyMemory:
    """The memory that the bodies of all requests of a process may use while they are read or processed.

    Bodies that come whole with their header are not counted, because they are not larger than one read.

    Args:
        size: Bytes.
        rejected: Counts requests that were rejected because memory was short, by reason (`slow` or `busy`).
    """

    def __init__(self, size: int, rejected: Mapping[str, CounterMetric] | None = None) -> None:
        self._free = size
        self._reserved = int(size * _RESERVED)
        self._most_of_one = int(size * _MOST_OF_ONE)
        self._of_callers: Counter[str] = Counter()
        self._rejected = rejected or {}
        self._holding: dict[RequestState, None] = {}
        self._counts = {"slow": 0, "busy": 0}
        self._limit = LogLimit(_LOG_EVERY)

    def take(self, request: RequestState, size: int) -> None:
        """Take memory for a request. It is released after the response.

        Raises:
            Problem: 503 if there is not enough.
        """
        reserved = 0 if request.caller else self._reserved
        is_too_much = request.caller and self._of_callers[request.caller] + size > self._most_of_one
        if is_too_much or (size > self._free - reserved and not self._drop_slow(request, size + reserved)):
            self._count("busy")
            raise Problem(503, "busy", "too many bodies are being received, try again", headers={"Retry-After": "1"})
        self._note(request, size)
        self._holding[request] = None

    def give_back(self, request: RequestState, size: int) -> None:
        """Release a part of the memory of a request."""
        self._note(request, -size)

    def release(self, request: RequestState) -> None:
        """Release the memory of a request."""
        self._note(request, -request.taken)
        self._holding.pop(request, None)

    def _note(self, request: RequestState, size: int) -> None:
        self._free -= size
        request.taken += size
        if request.caller:
            self._of_callers[request.caller] += size
            if not self._of_callers[request.caller]:
                del self._of_callers[request.caller]

    def _drop_slow(self, request: RequestState, needed: int) -> bool:
        """End other requests that come slowly, until that much is free, and return whether it is."""
        for is_admitted in (False, True):
            for other in list(self._holding):
                if needed <= self._free:
                    return True
                if other is not request and bool(other.caller) is is_admitted and other.connection.is_slow:
                    self.release(other)
                    detail = "the body comes too slowly while others wait for memory"
                    other.connection.drop_body(Problem(408, "body_too_slow", detail))
                    self._count("slow")
        return needed <= self._free

    def _count(self, reason: str) -> None:
        if reason in self._rejected:
            self._rejected[reason].inc()
        self._counts[reason] += 1
        if self._limit.is_due():
            _log.warning("body_memory_full", **self._counts)
            self._counts = dict.fromkeys(self._counts, 0)

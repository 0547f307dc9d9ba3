"""The external API without its sockets: decides which response a request for an order gets, and when."""

import time
from collections.abc import Mapping, Sequence
from random import Random

from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.catalogue import ORDERS, Catalogue, order_id_of
from ingest.lab.upstream.credentials import Authority, Credentials
from ingest.lab.upstream.faults import Fault, FaultPlan
from ingest.lab.upstream.limits.capacity import Capacity
from ingest.lab.upstream.limits.quota import QuotaWindow
from ingest.lab.upstream.listing import listed_keys, listing
from ingest.lab.upstream.responses import FaultyResponses, Response
from ingest.lab.upstream.stats import Stats, StatsReport


class Site:
    """The orders, the current behaviour and the counters."""

    def __init__(self, samples: Mapping[str, bytes], behaviour: Behaviour, random: Random) -> None:
        self._random = random
        self.catalogue = Catalogue(samples, behaviour)
        self.stats = Stats()
        self.authority = Authority(behaviour)
        self._capacity = Capacity()
        self.behave(behaviour)

    def behave(self, behaviour: Behaviour) -> None:
        """Use this behaviour from the next request on. Requests in flight keep the previous behaviour."""
        self.behaviour = behaviour
        self.authority.behave(behaviour)
        self.credentials = Credentials(behaviour, self.authority)
        self._plan = FaultPlan(
            behaviour, self._random, self.credentials.accepts if self.credentials.is_needed else None
        )
        self._faulty = FaultyResponses(behaviour)
        self._capacity.capacity, self._capacity.queue = behaviour.capacity, behaviour.capacity_queue
        self._window = QuotaWindow(behaviour) if behaviour.quota else None
        self.catalogue.behave(behaviour)

    def order(self, key: bytes, authorization: bytes | None) -> tuple[Response | None, float]:
        """Count a request, and return its response (None: never) and the seconds until it is sent."""
        now = time.monotonic()
        self.stats.arrived(key, now)
        return self._response(key, self.catalogue.response(key), authorization, now)

    def list_orders(self, query: bytes, authorization: bytes | None) -> tuple[Response | None, float]:
        """Like `order`, for a request to the list endpoint."""
        now, keys = time.monotonic(), listed_keys(query)
        self.stats.arrived_list(keys, now)
        right = listing(self.catalogue, keys, self.behaviour)
        return self._response(ORDERS + b"?" + query, right, authorization, now, keys)

    def _response(
        self, key: bytes, right: Response, authorization: bytes | None, now: float, keys: Sequence[bytes] = ()
    ) -> tuple[Response | None, float]:
        plan, window = self._plan, self._window
        if window is not None and (refusal := window.take(now)) is not None:
            return window.stamped(refusal, now), 0.0
        if plan.guarded:
            fault = plan.refuse(authorization, self.stats.concurrency)
            if fault:
                return self._faulty.to(fault, order_id_of(key), right, time.time()), 0.0
        response: Response | None = right if window is None else window.stamped(right, now)
        if plan.faulty and (fault := plan.draw(key, keys)):
            response = self._faulty.to(fault, order_id_of(key), right, time.time())
        if not self._capacity.capacity:
            return response, plan.draw_latency()
        latency = self._capacity.take(now, plan.draw_latency())
        if latency is None:
            return self._faulty.to(Fault.OVERLOADED, order_id_of(key), right, time.time()), 0.0
        return response, latency

    def report(self, *, with_ids: bool = True) -> StatsReport:
        """Return the counters, and on request the number of requests for each order, of which there can be a million."""
        by_key = self.stats.by_key if with_ids else {}
        return self.stats.report({order_id_of(key): count for key, count in by_key.items()})

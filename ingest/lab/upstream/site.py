"""The external API without its sockets: decides which response a request for an order gets, and when."""

import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from random import Random

import msgspec

from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.catalogue import ORDERS, Catalogue, order_id_of
from ingest.lab.upstream.credentials import Authority, Credentials
from ingest.lab.upstream.faults import Fault, FaultPlan
from ingest.lab.upstream.limits.call_limit import call_limit_of
from ingest.lab.upstream.limits.capacity import Capacity
from ingest.lab.upstream.limits.quota import QuotaWindow
from ingest.lab.upstream.responses import FaultyResponses, Response
from ingest.lab.upstream.shapes.listing import listed_keys, listing
from ingest.lab.upstream.shapes.shapes import SHAPES, RequestedOrder, shaped
from ingest.lab.upstream.shapes.shop_lists import SHOP_LISTS
from ingest.lab.upstream.stats import Stats, StatsReport

_SERVED = str(int(HTTPStatus.OK))


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
        self.shape = None if behaviour.shape is None else SHAPES[behaviour.shape]
        self.shop_list = None if behaviour.shape is None else SHOP_LISTS[behaviour.shape]
        self._call_limit = call_limit_of(behaviour, self._plan.bucket)

    def order(self, key: bytes, authorization: bytes | None) -> tuple[Response | None, float]:
        """Count a request, and return its response (None: never) and the seconds until it is sent."""
        now = time.monotonic()
        self.stats.arrived(key, now)
        return self._response(key, self.catalogue.response(key), authorization, now)

    def shaped(self, requested: RequestedOrder, authorization: bytes | None) -> tuple[Response | None, float]:
        """Like `order`, for a request in the shape of a shop."""
        now, key = time.monotonic(), ORDERS + requested.order_id
        self.stats.arrived(key, now)
        right = self.catalogue.response(key)
        if right.label == _SERVED and not self.catalogue.is_replaced(key):
            right = shaped(right, requested)
        return self._response(key, right, authorization, now)

    def list_orders(self, query: bytes, authorization: bytes | None) -> tuple[Response | None, float]:
        """Like `order`, for a request to the list endpoint."""
        now, keys = time.monotonic(), listed_keys(query)
        self.stats.arrived_list(keys, now)
        right = listing(self.catalogue, keys, self.behaviour)
        return self._response(ORDERS + b"?" + query, right, authorization, now, keys)

    def list_shaped(self, query: bytes, authorization: bytes | None) -> tuple[Response | None, float]:
        """Like `order`, for a request to the list endpoint of a shop."""
        shop, shape = self.shop_list, self.shape
        if shop is None or shape is None:
            raise AssertionError("there is no shop")
        now, keys = time.monotonic(), listed_keys(query, shop.parameter)
        self.stats.arrived_list(keys, now)

        def render(key: bytes, document: bytes) -> bytes:
            if self.catalogue.is_replaced(key):
                return document
            made = shape.order(msgspec.json.decode(document))
            return msgspec.json.encode(made[shop.envelope] if shop.envelope else made)

        right = listing(self.catalogue, keys, self.behaviour, shop.around, render)
        return self._response(ORDERS + b"?" + query, right, authorization, now, keys)

    def _response(
        self, key: bytes, right: Response, authorization: bytes | None, now: float, keys: Sequence[bytes] = ()
    ) -> tuple[Response | None, float]:
        plan, window = self._plan, self._window
        if window is not None and (refusal := window.take(now)) is not None:
            return window.stamped(refusal, now), 0.0
        if plan.guarded:
            fault = plan.refuse(authorization, self.stats.concurrency, now)
            if fault is Fault.THROTTLED and self._call_limit is not None:
                return self._call_limit.refusal(), 0.0
            if fault:
                return self._faulty.to(fault, order_id_of(key), right, time.time()), 0.0
        response: Response | None = right if window is None else window.stamped(right, now)
        if response is not None and self._call_limit is not None:
            response = self._call_limit.stamped(response)
        if plan.faulty and (fault := plan.draw(key, keys)):
            response = self._faulty.to(fault, order_id_of(key), right, time.time())
        if not self._capacity.capacity:
            return response, plan.draw_latency()
        latency = self._capacity.take(now, plan.draw_latency())
        if latency is None:
            return self._faulty.to(Fault.OVERLOADED, order_id_of(key), right, time.time()), 0.0
        return response, latency

    def report(self) -> StatsReport:
        """Return the counters, including requests by order."""
        by_id = {order_id_of(key): count for key, count in self.stats.by_key.items()}
        return self.stats.report(by_id)

    def report_without_ids(self) -> StatsReport:
        """Return the counters without the requests by order, of which there can be a million."""
        return self.stats.report({})

"""A seller's account at Amazon: Selling Partner API with Orders 2026-01-01 and v0, and Login with Amazon."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from urllib.parse import parse_qs

from aiohttp import web

from ingest.lab.shops.kinds.amazon_documents import order_2026, order_id, order_items_v0, order_v0
from ingest.lab.shops.kinds.kind import Document, Kind, decimal_number, existing, json_response, page_number, read_time
from ingest.lab.shops.making import Traits
from ingest.lab.shops.orders import ShopOrder

_ITEMS = 25  # in a page


class _Operation(NamedTuple):
    """An operation with its usual limit."""

    name: str
    rate: float
    burst: int


_SEARCH = _Operation("searchOrders", 0.0056, 20)
_GET = _Operation("getOrder", 0.5, 30)
_GET_ORDERS = _Operation("getOrders", 0.0167, 20)
_GET_V0 = _Operation("getOrderV0", 0.5, 30)
_GET_ITEMS = _Operation("getOrderItems", 0.5, 30)


class Amazon(Kind):
    """The API of the account, in a European marketplace, where prices include tax.

    Amazon sends notifications to queues of AWS only, and no webhooks.
    """

    token = "Atzr|simulated"  # noqa: S105  a default for tests
    traits = Traits(taxes_included=True, duties=False)

    def order_id(self, number: int) -> str:
        """See `Kind`."""
        return order_id(number)

    def number(self, order_id: str) -> int | None:
        """See `Kind`."""
        parts = order_id.split("-")
        found = decimal_number(parts[1]) if len(parts) == 3 else None
        return found if found is not None and self.order_id(found) == order_id else None

    def routes(self) -> Iterable[web.RouteDef]:
        """See `Kind`."""
        return (
            web.post("/auth/o2/token", self._login),
            web.get("/orders/2026-01-01/orders", self._guarded(self._search, _SEARCH)),
            web.get("/orders/2026-01-01/orders/{id}", self._guarded(self._one, _GET)),
            web.get("/orders/v0/orders", self._guarded(self._list_v0, _GET_ORDERS)),
            web.get("/orders/v0/orders/{id}", self._guarded(self._one_v0, _GET_V0)),
            web.get("/orders/v0/orders/{id}/orderItems", self._guarded(self._items_v0, _GET_ITEMS)),
        )

    async def _login(self, request: web.Request) -> web.Response:
        form = {name: values[-1] for name, values in parse_qs(await request.text()).items()}
        behaviour = self._site.behaviour
        if f"{form.get('client_id')}:{form.get('client_secret')}" != behaviour.client:
            self._state.counts["unauthorized"] += 1
            return json_response({"error": "invalid_client", "error_description": "Client authentication failed"}, 401)
        if form.get("grant_type") != "refresh_token":
            return json_response({"error": "unsupported_grant_type", "error_description": "Not supported"}, 400)
        if form.get("refresh_token") != behaviour.token:
            self._state.counts["unauthorized"] += 1
            return json_response(
                {"error": "invalid_grant", "error_description": "The request has an invalid grant"}, 400
            )
        token = {
            "access_token": self._site.issue_token("Atza|"),
            "refresh_token": behaviour.token,
            "token_type": "bearer",
            "expires_in": int(behaviour.token_lifetime),
        }
        return json_response(token, headers={"Cache-Control": "no-store"})

    async def _one(self, request: web.Request) -> web.Response:
        order = self._requested(request)
        return json_response({"order": order_2026(order, _included(request))})

    async def _search(self, request: web.Request) -> web.Response:
        query, included = request.query, _included(request)
        names = ("createdAfter", "createdBefore", "lastUpdatedAfter", "lastUpdatedBefore")
        found = self._listed(query, *names)
        shown, token = self._page(found, query.get("paginationToken"), query.get("maxResultsPerPage"))
        body: Document = {"orders": [order_2026(order, included) for order in shown]}
        self._site.page_served(shown)
        if token:
            body["pagination"] = {"nextToken": token}
        body["lastUpdatedBefore"] = query.get("lastUpdatedBefore", f"{self._latest():%Y-%m-%dT%H:%M:%SZ}")
        return json_response(body)

    async def _one_v0(self, request: web.Request) -> web.Response:
        order = self._requested(request)
        return json_response({"payload": order_v0(order)})

    async def _items_v0(self, request: web.Request) -> web.Response:
        order = existing(self._views.read(self.number(request.match_info["id"])))
        items = order_items_v0(order)
        first = decimal_number(request.query.get("NextToken", "0")) or 0
        payload: Document = {"AmazonOrderId": order_id(order.number), "OrderItems": items[first : first + _ITEMS]}
        if first + _ITEMS < len(items):
            payload["NextToken"] = str(first + _ITEMS)
        return json_response({"payload": payload})

    async def _list_v0(self, request: web.Request) -> web.Response:
        query = request.query
        if not query.get("MarketplaceIds"):
            raise ValueError("Missing required 'MarketplaceIds'.")
        if "AmazonOrderIds" in query:
            fetched = [self._views.fetch(self.number(one)) for one in query["AmazonOrderIds"].split(",")]
            orders = [order_v0(order) for order in fetched if order is not None]
            return json_response({"payload": {"Orders": orders}})
        names = ("CreatedAfter", "CreatedBefore", "LastUpdatedAfter", "LastUpdatedBefore")
        found = self._listed(query, *names)
        shown, token = self._page(found, query.get("NextToken"), query.get("MaxResultsPerPage"))
        payload: Document = {"Orders": [order_v0(order) for order in shown]}
        self._site.page_served(shown)
        if token:
            payload["NextToken"] = token
        payload["LastUpdatedBefore"] = f"{self._latest():%Y-%m-%dT%H:%M:%SZ}"
        return json_response({"payload": payload})

    def _listed(
        self, query: Mapping[str, str], created_after: str, created_before: str, updated_after: str, updated_before: str
    ) -> list[ShopOrder]:
        moments = {
            name: read_time(query.get(name)) for name in (created_after, created_before, updated_after, updated_before)
        }
        if (moments[created_after] is None) == (moments[updated_after] is None):
            raise ValueError(f"Exactly one of {created_after} and {updated_after} must be given.")
        latest = self._latest()
        for name in (created_before, updated_before):
            if (moment := moments[name]) is not None and moment > latest:
                raise ValueError(f"{name} must be no later than two minutes before the time of the request.")
        return self._in(moments[created_after], moments[created_before], lambda order: order.placed_at) or self._in(
            moments[updated_after], moments[updated_before], lambda order: order.listed_at
        )

    def _latest(self) -> datetime:
        """The latest permitted end of a period."""
        return self._state.now() - timedelta(seconds=self._site.behaviour.list_lag)

    def _in(
        self, since: datetime | None, until: datetime | None, moment: Callable[[ShopOrder], datetime]
    ) -> list[ShopOrder]:
        if since is None:
            return []
        # Without an end, the period ends two minutes ago.
        end = until or self._latest()
        return [order for order in self._views.listed(None) if since <= moment(order) <= end]

    def _page(
        self, found: Sequence[ShopOrder], token: str | None, size: str | None
    ) -> tuple[Sequence[ShopOrder], str | None]:
        """Return a page after the order in the token, and the token of the next page."""
        limit = self._views.size(page_number(size, 100, 100))
        after = 0
        if token:
            at, number, *_ = token.split("_")
            position = (int(at), int(number))
            after = sum((int(order.listed_at.timestamp()), order.number) <= position for order in found)
        page = self._views.page(found, after, limit)
        if not page.has_more or not page.selected:
            return page.shown, None
        last = page.selected[-1]
        return page.shown, f"{int(last.listed_at.timestamp())}_{last.number}_{self._views.new_cursor()}"

    def _refusal(self, request: web.Request, *limits: _Operation) -> web.Response | None:
        (operation,) = limits
        if not self._site.is_issued(request.headers.get("x-amz-access-token", "")):
            return self._unauthorized(_error(403, "Unauthorized", "Access to requested resource is denied."))
        if not self._site.takes(self._site.bucket(*operation)):
            # Without a rate and without Retry-After.
            return _error(429, "QuotaExceeded", "You exceeded your quota for the requested resource.")
        return None

    def _missing(self) -> web.Response:
        return _error(404, "NotFound", "Resource not found.")

    def _invalid(self, problem: str) -> web.Response:
        return _error(400, "InvalidInput", problem)

    def _stamped(self, response: web.Response, *limits: _Operation) -> web.Response:
        (operation,) = limits
        response.headers["x-amzn-RateLimit-Limit"] = f"{self._site.bucket(*operation).rate:g}"
        response.headers["x-amzn-RequestId"] = f"{self._state.counts['requests']:032x}"
        return response


def _included(request: web.Request) -> frozenset[str]:
    return frozenset(name for text in request.query.getall("includedData", []) for name in text.split(","))


def _error(status: int, code: str, message: str) -> web.Response:
    return json_response({"errors": [{"code": code, "message": message, "details": ""}]}, status)

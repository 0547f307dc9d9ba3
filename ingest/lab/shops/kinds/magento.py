"""A shop of Magento or Adobe Commerce: REST API, bearer token, search criteria, numbers for money, times without a zone."""

import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web

from ingest.lab.shops.kinds.kind import Kind, json_response, page_number
from ingest.lab.shops.kinds.magento_documents import STATES, magento_order, magento_time
from ingest.lab.shops.making import Traits
from ingest.lab.shops.orders import ShopOrder

_ORDERS = "/rest/{store:(?:[a-z_]+/)?}V1/orders"
_FILTER = re.compile(
    r"searchCriteria\[(?:filter_groups|filterGroups)\]\[(\d+)\]\[filters\]\[(\d+)\]"
    r"\[(field|value|condition_type|conditionType)\]"
)
_SORT = re.compile(r"searchCriteria\[(?:sortOrders|sort_orders)\]\[(\d+)\]\[(field|direction)\]")

_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda one, other: bool(one == other),
    "neq": lambda one, other: bool(one != other),
    "gt": lambda one, other: bool(one > other),
    "gteq": lambda one, other: bool(one >= other),
    "lt": lambda one, other: bool(one < other),
    "lteq": lambda one, other: bool(one <= other),
    "from": lambda one, other: bool(one >= other),
    "to": lambda one, other: bool(one <= other),
}


class Magento(Kind):
    """The API of the shop. Magento Open Source sends no webhooks."""

    traits = Traits(fractional=True)

    def routes(self) -> Iterable[web.RouteDef]:
        """See `Kind`."""
        return web.get(_ORDERS, self._guarded(self._search)), web.get(_ORDERS + "/{id}", self._guarded(self._one))

    async def _one(self, request: web.Request) -> web.Response:
        return json_response(magento_order(self._requested(request)))

    async def _search(self, request: web.Request) -> web.Response:
        query = request.query
        try:
            found = self._found(query)
        except KeyError as error:
            raise ValueError("unknown field or condition") from error
        size = self._views.size(page_number(_parameter(query, "pageSize", "page_size"), max(1, len(found))))
        page = page_number(_parameter(query, "currentPage", "current_page"), 1)
        # Beyond the last page, Magento repeats the last one.
        page = min(page, max(1, -(-len(found) // size)))
        shown = self._views.page(found, (page - 1) * size, size).shown
        if any(value == "entity_id" for name, value in query.items() if _FILTER.fullmatch(name)):
            shown = [order for order in shown if self._views.fetch(order.number)]
        criteria = {"filter_groups": [], "page_size": size, "current_page": page}
        items = [magento_order(order) for order in shown]
        self._site.page_served(shown)
        return json_response({"items": items, "search_criteria": criteria, "total_count": len(found)})

    def _found(self, query: Mapping[str, str]) -> list[ShopOrder]:
        groups: dict[str, dict[str, dict[str, str]]] = {}
        sorts: dict[str, dict[str, str]] = {}
        for name, value in query.items():
            if (match := _FILTER.fullmatch(name)) is not None:
                part = "condition_type" if match[3] == "conditionType" else match[3]
                groups.setdefault(match[1], {}).setdefault(match[2], {})[part] = value
            elif (match := _SORT.fullmatch(name)) is not None:
                sorts.setdefault(match[1], {})[match[2]] = value
        is_by_id = any(one.get("field") == "entity_id" for group in groups.values() for one in group.values())
        found = [
            order
            for order in (self._views.all_orders() if is_by_id else self._views.listed(None))
            if all(any(self._fits(order, one) for one in group.values()) for group in groups.values())
        ]
        if not sorts:
            found.sort(key=lambda order: order.number)
        for _, sort in sorted(sorts.items(), reverse=True):
            field, is_descending = sort["field"], sort.get("direction", "DESC").upper() == "DESC"
            found.sort(key=lambda order: _value(order, field), reverse=is_descending)
        return found

    def _fits(self, order: ShopOrder, wanted: Mapping[str, str]) -> bool:
        field, condition = wanted["field"], wanted.get("condition_type", "eq")
        value = _value(order, field)
        if condition in {"in", "nin"}:
            return (str(value) in wanted["value"].split(",")) == (condition == "in")
        return _COMPARISONS[condition](value, type(value)(wanted["value"]))

    def _missing(self) -> web.Response:
        text = "The entity that was requested doesn't exist. Verify the entity and try again."
        return json_response({"message": text}, 404)

    def _invalid(self, _problem: str) -> web.Response:
        return json_response({"message": "Invalid search criteria."}, 400)

    def _refusal(self, request: web.Request, *_limits: object) -> web.Response | None:
        given = request.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._site.behaviour.token}".encode()):
            text = "The consumer isn't authorized to access %resources."
            problem = {"message": text, "parameters": {"resources": "Magento_Sales::actions_view"}}
            return self._unauthorized(json_response(problem, 401))
        if not self._site.takes(self._site.bucket("requests", 1e6, 1e6)):
            return web.Response(text="<html><h1>503 Backend fetch failed</h1></html>", status=503)
        return None


def _parameter(query: Mapping[str, str], *names: str) -> str | None:
    return next((query[key] for name in names if (key := f"searchCriteria[{name}]") in query), None)


def _value(order: ShopOrder, field: str) -> str | int:
    """The value of a field that orders can be searched by. Times are compared as text, like in the shop's database."""
    match field:
        case "entity_id":
            return order.number
        case "updated_at":
            return magento_time(order.listed_at)
        case "created_at":
            return magento_time(order.placed_at)
        case "status":
            return STATES[order.status][1]
        case "increment_id":
            return f"{order.number:09}"
        case _:
            raise KeyError(field)

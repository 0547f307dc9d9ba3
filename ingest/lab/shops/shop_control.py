"""The routes that read and change a simulated shop. Their requests are not counted, delayed or throttled."""

from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

import msgspec
from aiohttp import web

from ingest.lab.shops.kinds.kind import Kind, json_response, read_time
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.shop_site import ShopSite

CONTROL_PATHS = ("/behaviour", "/stats", "/shop")
"""The first parts of the paths."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
_Late = Annotated[float, msgspec.Meta(ge=0)]


class Changes(msgspec.Struct, forbid_unknown_fields=True):
    """Which orders change.

    Attributes:
        ids: IDs of these orders.
        count: further orders, drawn at random.
        late: seconds until lists contain them again.
        quiet: whether no webhooks are sent.
    """

    ids: list[str] = []
    count: _Count = 0
    late: _Late = 0.0
    quiet: bool = False


class Creations(msgspec.Struct, forbid_unknown_fields=True):
    """How many orders are created. See `Changes`."""

    count: _Count = 1
    late: _Late = 0.0
    quiet: bool = False


T = TypeVar("T")


class ShopControl:
    """`GET PATCH /behaviour`, `GET DELETE /stats`, and the routes below `/shop`."""

    def __init__(self, site: ShopSite, kind: Kind, name: str) -> None:
        self._site, self._state, self._kind, self._name = site, site.state, kind, name

    def routes(self) -> Iterable[web.RouteDef]:
        """Return the routes."""
        return (
            web.get("/behaviour", self._show_behaviour),
            web.patch("/behaviour", self._change_behaviour),
            web.get("/stats", self._show_stats),
            web.delete("/stats", self._reset_stats),
            web.get("/shop", self._show_shop),
            web.get("/shop/orders", self._list_orders),
            web.post("/shop/orders", self._create),
            web.delete("/shop/orders/{id}", self._delete),
            web.post("/shop/changes", self._change),
            web.delete("/shop/tokens", self._revoke),
        )

    async def _show_behaviour(self, _request: web.Request) -> web.Response:
        return json_response(self._site.behaviour)

    async def _change_behaviour(self, request: web.Request) -> web.Response:
        try:
            self._site.behave(**msgspec.json.decode(await request.read(), type=dict[str, object]))
        except ValueError as error:
            return _problem(422, str(error))
        return json_response(self._site.behaviour)

    async def _show_stats(self, request: web.Request) -> web.Response:
        state = self._state
        used = {name: round(bucket.used, 3) for name, bucket in self._site.buckets.items()}
        stats = {"counts": dict(state.counts), "used": used, "fetches": sum(state.fetches.values())}
        if request.query.get("ids") != "0":
            stats["by_id"] = {self._kind.order_id(number): count for number, count in state.fetches.items()}
        return json_response(stats)

    async def _reset_stats(self, _request: web.Request) -> web.Response:
        self._state.counts.clear()
        self._state.fetches.clear()
        for bucket in self._site.buckets.values():
            bucket.used = 0.0
        return web.Response(status=204)

    async def _show_shop(self, _request: web.Request) -> web.Response:
        shop = {"kind": self._name, "orders": len(self._state), "first_id": self._kind.order_id(1)}
        return json_response({**shop, "last_id": self._kind.order_id(self._state.last)})

    async def _list_orders(self, request: web.Request) -> web.Response:
        try:
            since = read_time(request.query.get("since"))
        except ValueError:
            return _problem(422, "since is no time")
        return json_response([self._row(order) for order in self._state.listed(since)])

    async def _create(self, request: web.Request) -> web.Response:
        wanted = await _body(request, Creations)
        if isinstance(wanted, web.Response):
            return wanted
        made = [self._state.create(late=wanted.late, quiet=wanted.quiet) for _ in range(wanted.count)]
        return json_response([self._row(order) for order in made], 201)

    async def _change(self, request: web.Request) -> web.Response:
        wanted = await _body(request, Changes)
        if isinstance(wanted, web.Response):
            return wanted
        named = [self._state.get(self._kind.number(order_id)) for order_id in wanted.ids]
        chosen = [order for order in named if order is not None]
        if len(chosen) < len(named):
            return _problem(404, "an order does not exist")
        chosen += self._state.random_orders(wanted.count)
        for order in chosen:
            self._state.change(order, late=wanted.late, quiet=wanted.quiet)
        return json_response([self._row(order) for order in chosen])

    async def _delete(self, request: web.Request) -> web.Response:
        order = self._state.get(self._kind.number(request.match_info["id"]))
        if order is None:
            return _problem(404, "the order does not exist")
        self._state.delete(order, quiet=request.query.get("quiet") == "true")
        return web.Response(status=204)

    async def _revoke(self, _request: web.Request) -> web.Response:
        self._site.revoke_tokens()
        return web.Response(status=204)

    def _row(self, order: ShopOrder) -> dict[str, object]:
        return {
            "id": self._kind.order_id(order.number),
            "updated_at": order.updated_at,
            "revision": order.revision,
            "status": order.status,
            "total": str(order.charged.inc_tax),
            "refunded": str(order.refunded.inc_tax),
            "currency": order.currency,
        }


async def _body(request: web.Request, kind: Callable[..., T]) -> T | web.Response:
    try:
        return msgspec.json.decode(await request.read() or b"{}", type=kind)  # type: ignore[no-any-return]
    except ValueError as error:
        return _problem(422, str(error))


def _problem(status: int, detail: str) -> web.Response:
    return json_response({"status": status, "detail": detail}, status)

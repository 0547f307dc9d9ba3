"""What both APIs of Shopify share: IDs, the login of an app, access tokens, and webhooks."""

import hmac
from abc import abstractmethod
from collections.abc import Iterable
from datetime import UTC
from uuid import UUID

import msgspec
from aiohttp import web

from ingest.lab.shops.kinds.kind import Handler, Kind, Webhook, hmac_base64, json_response
from ingest.lab.shops.kinds.shopify.rest_documents import FIRST_ID, VERSION, rest_order
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.shop_state import Event

_TOPICS = {"created": "orders/create", "updated": "orders/updated", "deleted": "orders/delete", "status": "orders/paid"}


class ShopifyShop(Kind):
    """A shop of Shopify, without the routes for orders."""

    token = "shpat_simulated"  # noqa: S105  a default for tests
    token_lifetime = 86_399.0
    first_id = FIRST_ID
    retries = tuple(56.0 * 2**number for number in range(8))

    def routes(self) -> Iterable[web.RouteDef]:
        """See `Kind`."""
        return (web.post("/admin/oauth/access_token", self._login), *self._order_routes())

    def _versioned(self, handler: Handler) -> Handler:
        """Return a handler whose responses contain the version of the API that was served."""

        async def respond(request: web.Request) -> web.Response:
            response, modes = await handler(request), self._site.behaviour
            response.headers["X-Shopify-API-Version"] = modes.served_version or request.match_info["version"]
            if modes.deprecated:
                response.headers["X-Shopify-API-Deprecated-Reason"] = modes.deprecated
            return response

        return respond

    @abstractmethod
    def _order_routes(self) -> Iterable[web.RouteDef]: ...

    def webhook(self, event: Event, order: ShopOrder, secret: bytes) -> Webhook | None:
        """See `Kind`. The body is the order of the REST API without its envelope."""
        body = msgspec.json.encode({"id": FIRST_ID + order.number} if event == "deleted" else rest_order(order))
        at = self._state.now() if event == "deleted" else order.updated_at
        headers = {
            "X-Shopify-Topic": _TOPICS[event],
            "X-Shopify-Hmac-Sha256": hmac_base64(secret, body),
            "X-Shopify-Shop-Domain": "simulated.myshopify.com",
            "X-Shopify-API-Version": VERSION,
            "X-Shopify-Webhook-Id": str(UUID(int=(order.number << 64) + (order.revision << 8) + ord(event[0]))),
            "X-Shopify-Event-Id": str(UUID(int=(order.number << 64) + (order.revision << 8))),
            # The order of events within one second follows from the fraction.
            "X-Shopify-Triggered-At": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.")
            + f"{order.revision % 1_000_000:06}000Z",
        }
        return Webhook(body, headers)

    def is_allowed(self, request: web.Request) -> bool:
        """Whether a request has a valid access token."""
        given = request.headers.get("X-Shopify-Access-Token", "")
        token = self._site.behaviour.token
        if hmac.compare_digest(given.encode(), token.encode()) or self._site.is_issued(given):
            return True
        self._state.counts["unauthorized"] += 1
        return False

    async def _login(self, request: web.Request) -> web.Response:
        if request.content_type == "application/json":
            try:
                form = msgspec.json.decode(await request.read(), type=dict[str, str])
            except ValueError:
                return _login_error("invalid_request")
        else:
            form = {name: str(value) for name, value in (await request.post()).items()}
        if form.get("grant_type") != "client_credentials":
            return _login_error("unsupported_grant_type")
        if f"{form.get('client_id')}:{form.get('client_secret')}" != self._site.behaviour.client:
            return self._unauthorized(_login_error("application_cannot_be_found"))
        token = self._site.issue_token("shpat_")
        lifetime = int(self._site.behaviour.token_lifetime)
        return json_response({"access_token": token, "scope": "read_orders,read_all_orders", "expires_in": lifetime})


def _login_error(error: str) -> web.Response:
    return json_response({"error": error}, 400)


UNAUTHORIZED = "[API] Invalid API key or access token (unrecognized login or wrong password)"
"""The text of Shopify's 401."""

"""The routes that read and change the simulated API. Their requests are not counted, delayed or faulty."""

from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qs

import msgspec

from ingest.lab.upstream.behaviour import Behaviour, changed
from ingest.lab.upstream.catalogue import ORDERS
from ingest.lab.upstream.responses import Response, problem, response, uncounted
from ingest.lab.upstream.site import Site

Handler = Callable[[bytes, bytes], Response]
"""Called with the query and the body of a request."""


class Control:
    """`GET PUT PATCH /behaviour`, `GET DELETE /stats`, `PUT DELETE /orders/{id}`."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._routes: dict[bytes, dict[bytes, Handler]] = {
            b"/behaviour": {
                b"GET": self._show_behaviour,
                b"PUT": self._replace_behaviour,
                b"PATCH": self._change_behaviour,
            },
            b"/stats": {b"GET": self._show_stats, b"DELETE": self._reset_stats},
        }

    def response(self, method: bytes, path: bytes, query: bytes, body: bytes) -> Response:
        """Handle a request. The path is percent-decoded."""
        handlers = self._order_routes(path) if path.startswith(ORDERS) else self._routes.get(path)
        if handlers is None:
            return uncounted(problem(HTTPStatus.NOT_FOUND, "this route does not exist"))
        handler = handlers.get(b"GET" if method == b"HEAD" else method)
        if handler is None:
            allowed = ", ".join(name.decode() for name in handlers)
            return uncounted(problem(HTTPStatus.METHOD_NOT_ALLOWED, f"this route allows {allowed}", Allow=allowed))
        return uncounted(handler(query, body))

    def _order_routes(self, key: bytes) -> dict[bytes, Handler]:
        def put(_query: bytes, body: bytes) -> Response:
            self._site.catalogue.put(key, body)
            return response(HTTPStatus.NO_CONTENT)

        def delete(_query: bytes, _body: bytes) -> Response:
            self._site.catalogue.delete(key)
            return response(HTTPStatus.NO_CONTENT)

        # GET, HEAD and POST are handled elsewhere, and listed here for the Allow header.
        elsewhere = dict.fromkeys((b"GET", b"HEAD", b"POST"), self._unreachable)
        return {**elsewhere, b"PUT": put, b"DELETE": delete}

    def _unreachable(self, _query: bytes, _body: bytes) -> Response:
        raise AssertionError("requests for orders are handled by the site")

    def _show_behaviour(self, _query: bytes, _body: bytes) -> Response:
        return response(HTTPStatus.OK, msgspec.json.encode(self._site.behaviour))

    def _replace_behaviour(self, query: bytes, body: bytes) -> Response:
        try:
            self._site.behave(msgspec.json.decode(body, type=Behaviour))
        except ValueError as error:
            return problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        return self._show_behaviour(query, body)

    def _change_behaviour(self, query: bytes, body: bytes) -> Response:
        try:
            changes = msgspec.json.decode(body, type=dict[str, object])
            self._site.behave(changed(self._site.behaviour, changes))
        except ValueError as error:
            return problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error))
        return self._show_behaviour(query, body)

    def _show_stats(self, query: bytes, _body: bytes) -> Response:
        without_ids = parse_qs(query).get(b"ids") == [b"0"]
        return response(HTTPStatus.OK, msgspec.json.encode(self._site.report(with_ids=not without_ids)))

    def _reset_stats(self, _query: bytes, _body: bytes) -> Response:
        self._site.stats.reset()
        return response(HTTPStatus.NO_CONTENT)

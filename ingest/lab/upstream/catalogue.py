"""Keeps the documents of the orders as responses that are ready to be written."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from zlib import crc32

import msgspec

from ingest.domain.orders.order_id import is_order_id
from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.responses import Response, not_found, response

ORDERS = b"/orders/"
"""The prefix of every order's path. The whole path is the key everywhere."""

# Nearly every ID. All others are checked more slowly.
_USUAL_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_CURRENCY = b'"currency":"GBP"'  # of every sample
_ALIKE = 100  # documents that remain with `any_bytes`


def order_id_of(key: bytes) -> str:
    """Return the order's ID as text, with invalid UTF-8 escaped."""
    return key[len(ORDERS) :].decode(errors="backslashreplace")


class Catalogue:
    """The documents of all orders, which are bundled, replaced or deleted."""

    def __init__(self, samples: Mapping[str, bytes], behaviour: Behaviour) -> None:
        self._samples = samples
        self._replaced: dict[bytes, Response | None] = {}
        self._behave(behaviour)

    def behave(self, behaviour: Behaviour) -> None:
        """Rebuild the documents if one of their settings has changed."""
        if _of_documents(behaviour) != _of_documents(self._behaviour):
            self._behave(behaviour)

    def _behave(self, behaviour: Behaviour) -> None:
        self._behaviour = behaviour
        # Built on request, because most tests use only a few of the ten thousand.
        self._responses: dict[bytes, Response] = {}
        self._rests: list[bytes] = []
        for key, replacement in self._replaced.items():
            self._put(key, replacement)

    def put(self, key: bytes, document: bytes) -> None:
        """Serve exactly these bytes for an order from now on."""
        self._replaced[key] = response(HTTPStatus.OK, document)
        self._put(key, self._replaced[key])

    def delete(self, key: bytes) -> None:
        """Respond with 404 for an order from now on."""
        self._replaced[key] = None
        self._put(key, None)

    def _put(self, key: bytes, replacement: Response | None) -> None:
        if replacement is None:
            self._responses.pop(key, None)
        else:
            self._responses[key] = replacement

    def response(self, key: bytes) -> Response:
        """Return the response with the order's document, or 404."""
        return self._responses.get(key) or self._other(key)

    def _other(self, key: bytes) -> Response:
        order_id = key[len(ORDERS) :]
        if key not in self._replaced and (document := self._samples.get(order_id_of(key))) is not None:
            self._responses[key] = made = response(HTTPStatus.OK, self._adapted(document))
            return made
        is_usual = _USUAL_ID.fullmatch(order_id) is not None
        if not self._behaviour.any_id or key in self._replaced or not (is_usual or is_order_id(order_id_of(key))):
            return not_found(order_id_of(key))
        written = b'"%s"' % order_id if is_usual else msgspec.json.encode(order_id_of(key))
        body = b'{"id":%s,%s' % (written, self._rest(order_id))
        return Response(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body),
            "200",
        )

    def _rest(self, order_id: bytes) -> bytes:
        """The part after the ID in one of the samples, always the same sample for an ID."""
        if not self._rests:
            documents = list(self._samples.values())
            if (wanted := self._behaviour.any_bytes) is not None:
                documents = sorted(documents, key=lambda document: abs(len(document) - wanted))[:_ALIKE]
            self._rests = [self._adapted(document).split(b",", 1)[1] for document in documents]
        return self._rests[crc32(order_id) % len(self._rests)]

    def _adapted(self, document: bytes) -> bytes:
        """A sample with the currency, and the time of its last update, of these settings."""
        if (currency := self._behaviour.currency) is not None:
            document = document.replace(_CURRENCY, b'"currency":"%s"' % currency.encode(), 1)
        if (updated_at := self._behaviour.updated_at) is not None:
            head, rest = document.split(b",", 1)  # every sample begins with the ID
            document = b'%s,"updated_at":%s,%s' % (head, msgspec.json.encode(updated_at), rest)
        return document


def _of_documents(behaviour: Behaviour) -> tuple[object, ...]:
    """The settings that documents depend on."""
    return behaviour.updated_at, behaviour.currency, behaviour.any_id, behaviour.any_bytes

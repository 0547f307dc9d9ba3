"""Shopify's rate limit, with a header on every response and a 429 in the shop's own format."""

import math
from http import HTTPStatus

import msgspec

from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.faults import TokenBucket
from ingest.lab.upstream.responses import Response, response

_HEADER = b"X-Shopify-Shop-Api-Call-Limit"


class CallLimit:
    """The limit of one shop.

    Args:
        behaviour: a behaviour with a rate limit.
        bucket: the bucket that limits requests.
    """

    def __init__(self, behaviour: Behaviour, bucket: TokenBucket) -> None:
        self._bucket = bucket
        rate = f"{behaviour.rate_limit:g}"
        body = {"errors": f"Exceeded {rate} calls per second for api client. Reduce request rates to resume service."}
        # A fraction, which the standard does not allow but Shopify sends.
        wait = f"{behaviour.retry_after}.0"
        self._refusal = response(HTTPStatus.TOO_MANY_REQUESTS, msgspec.json.encode(body), Retry_After=wait)

    def refusal(self) -> Response:
        """The response to a request above the limit."""
        return self.stamped(self._refusal)

    def stamped(self, given: Response) -> Response:
        """The response with the header for the used part of the limit."""
        header = b"\r\n%b: %d/%d\r\n" % (_HEADER, math.ceil(self._bucket.used), self._bucket.burst)
        return given._replace(payload=given.payload.replace(b"\r\n", header, 1))


def call_limit_of(behaviour: Behaviour, bucket: TokenBucket | None) -> CallLimit | None:
    """The limit of a behaviour with Shopify's shape and a rate limit, else None."""
    return CallLimit(behaviour, bucket) if behaviour.shape == "shopify" and bucket is not None else None

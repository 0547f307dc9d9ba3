"""The settings of the simulated external API.

The command line, `PUT /behaviour`, `GET /behaviour` and code share this type, so that all of them use the same names.
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from random import Random
from typing import Annotated, Any, Literal, get_args

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A share of all requests for orders, from 0 (none) to 1 (all)."""

LONGEST_LATENCY = 3600.0

SHARES = (
    "error_rate",
    "unavailable_rate",
    "not_found_rate",
    "redirect_rate",
    "malformed_rate",
    "wrong_type_rate",
    "oversize_rate",
    "truncate_rate",
    "reset_rate",
    "hang_rate",
)
"""The faults of which a request draws at most one. Their sum is at most 1."""

_FORMS = {"basic": "USER:PASSWORD", "key": "NAME: VALUE", "client": "ID:SECRET"}


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The responses to requests for orders, which are immediate and correct by default.

    Ranges are checked where a value comes from outside (`checked`, `changed`, decoding JSON).

    Attributes:
        latency: seconds until the response, as `0.1`, `0.1-0.2` (uniform) or `lognormal:MEDIAN,SIGMA`.
            Rejections (401, 429, an outage) are sent immediately.
        error_rate: share of `error_status` responses.
        error_status: an HTTP status from 400 to 599.
        unavailable_rate: share of 503 responses with Retry-After.
        not_found_rate: share of 404 responses although the order exists.
        redirect_rate: share of 302 responses that point to the same order.
        malformed_rate: share of 200 responses with broken JSON.
        wrong_type_rate: share of 200 responses with JSON that is not an order.
        oversize_rate: share of 200 responses with a JSON body of `oversize_bytes`.
        oversize_bytes: length of such a body.
        truncate_rate: share of responses that end after half of the body, with a closed connection.
        reset_rate: share of requests whose connection is reset without a response.
        hang_rate: share of requests that never get a response, so that the client has to time out.
        fail_first: limit the shares above to the first n requests for each order since the behaviour was set, or 0 for
            no limit.
        rate_limit: requests per second above which the response is 429, or 0 for no limit.
        rate_burst: concurrent requests allowed within `rate_limit`, or null for the requests of one second.
        concurrency_limit: requests in progress above which the response is 429, or 0 for no limit.
        capacity: requests processed concurrently while the others wait, or 0 for no limit. See `limits.capacity`.
        capacity_queue: requests that can wait. Others get a 503 without Retry-After.
        quota: requests in each `quota_window` above which the response is 429 until the window ends, or 0 for no quota.
        quota_window: seconds.
        quota_headers: how responses report the remaining quota, as list `items` (draft-08 and later), as `members`
            (draft-07), in `fields` (earlier drafts), in fields with the prefix `x`, or `none`.
        retry_after: seconds to wait after a 429 or 503.
        retry_after_format: `seconds`, an HTTP `date`, or `none` for no header.
        down: an outage in which every request gets a `503` without Retry-After, an HTML `page`, an `empty` object or a
            `404`, or its connection is `reset`.
        token: requests without `Authorization: Bearer TOKEN` get 401. Without this and the next three, all are
            accepted.
        basic: `USER:PASSWORD`. Requests without them in `Authorization: Basic` get 401.
        key: `NAME: VALUE`. Requests without this header get 401.
        client: `ID:SECRET`. Requests without a token that `POST /token` has issued to this client get 401.
        token_lifetime: seconds until such a token expires.
        token_latency: seconds until it is issued.
        authority_down: failure of `POST /token`, as `503`, `401`, `reset` or `hang`.
        updated_at: the `updated_at` of every bundled order, or null to omit it.
        currency: the currency of every bundled order, or null for GBP.
        list_limit: orders in one request to the list endpoint above which the response is 422.
        list_shape: whether a list is an `object` with the member `orders`, or an `array`.
        breaking_id: any request that includes this order gets `error_status`, or null for none.
        any_id: serve any well-formed ID, with the document of a bundled order.
        any_bytes: for such IDs, use only the hundred bundled orders whose documents are closest to this length.
    """

    latency: str = "0"
    error_rate: Share = 0.0
    error_status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 500
    unavailable_rate: Share = 0.0
    not_found_rate: Share = 0.0
    redirect_rate: Share = 0.0
    malformed_rate: Share = 0.0
    wrong_type_rate: Share = 0.0
    oversize_rate: Share = 0.0
    oversize_bytes: Annotated[int, msgspec.Meta(ge=64, le=1 << 30)] = 32 << 20
    truncate_rate: Share = 0.0
    reset_rate: Share = 0.0
    hang_rate: Share = 0.0
    fail_first: Annotated[int, msgspec.Meta(ge=0)] = 0
    rate_limit: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    rate_burst: Annotated[int, msgspec.Meta(ge=1)] | None = None
    concurrency_limit: Annotated[int, msgspec.Meta(ge=0)] = 0
    capacity: Annotated[int, msgspec.Meta(ge=0)] = 0
    capacity_queue: Annotated[int, msgspec.Meta(ge=0)] = 1000
    quota: Annotated[int, msgspec.Meta(ge=0)] = 0
    quota_window: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 60.0
    quota_headers: Literal["items", "members", "fields", "x", "none"] = "items"
    retry_after: Annotated[int, msgspec.Meta(ge=0)] = 1
    retry_after_format: Literal["seconds", "date", "none"] = "seconds"
    down: Literal["503", "reset", "page", "empty", "404"] | None = None
    token: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    basic: Annotated[str, msgspec.Meta(pattern="^[^:]+:.")] | None = None
    key: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9-]+: *[^ ]")] | None = None
    client: Annotated[str, msgspec.Meta(pattern="^[^:]+:.")] | None = None
    token_lifetime: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 3600.0
    token_latency: Annotated[float, msgspec.Meta(ge=0, le=60)] = 0.0
    authority_down: Literal["503", "401", "reset", "hang"] | None = None
    updated_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    currency: Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")] | None = None
    list_limit: Annotated[int, msgspec.Meta(ge=1)] = 250
    list_shape: Literal["object", "array"] = "object"
    breaking_id: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    any_id: bool = False
    any_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        """Check fields that depend on each other."""
        parse_latency(self.latency)
        total = sum(getattr(self, share) for share in SHARES)
        if total > 1 + 1e-9:
            raise ValueError(f"the shares of faults add up to {total:g}, which is more than 1")


def checked(behaviour: Behaviour) -> Behaviour:
    """Return the same behaviour after checking every range.

    Raises:
        ValueError: a value is out of range (`msgspec.ValidationError` is one).
    """
    return changed(behaviour, {})


def changed(behaviour: Behaviour, changes: Mapping[str, object]) -> Behaviour:
    """Return a behaviour with some fields changed.

    Raises:
        ValueError: a field is unknown, or a value has the wrong type or is out of range.
    """
    try:
        return msgspec.convert({**msgspec.to_builtins(behaviour), **changes}, Behaviour)
    except msgspec.ValidationError as error:
        raise ValueError(_with_form(_with_choices(str(error)))) from error


def _with_form(problem: str) -> str:
    """The problem with the form of a text instead of its regular expression."""
    field = re.search(r"`\$\.(\w+)`$", problem)
    form = None if field is None else _FORMS.get(field[1])
    return problem if form is None else re.sub(r"`str` matching regex '.*'", form, problem)


def _with_choices(problem: str) -> str:
    field = re.search(r"^Invalid enum value.*`\$\.(\w+)`$", problem)
    return problem if field is None else f"{problem}: choose {', '.join(_choices(Behaviour.__annotations__[field[1]]))}"


def _choices(annotation: Any) -> list[str]:
    """The values of a `Literal`, even if it may be None."""
    parts = get_args(annotation)
    return [text for part in parts for text in ([part] if isinstance(part, str) else _choices(part))]


def parse_latency(text: str) -> Callable[[Random], float] | None:
    """Read a latency, and return a function that draws one in seconds, or None for no latency.

    Raises:
        ValueError: the text does not have one of the three forms, or is longer than an hour.
    """
    median, comma, sigma = text.removeprefix("lognormal:").partition(",")
    low, dash, high = text.partition("-")
    try:
        if comma and text.startswith("lognormal:"):
            location, spread = math.log(_seconds(median)), _seconds(sigma)
            return lambda random: min(random.lognormvariate(location, spread), LONGEST_LATENCY)
        shortest = _seconds(low)
        longest = _seconds(high, at_least=shortest) if dash else shortest
    except ValueError:
        raise ValueError(
            f"{text!r} is not a latency; write 0.1, 0.1-0.2 or lognormal:MEDIAN,SIGMA in seconds, at most "
            f"{LONGEST_LATENCY:.0f}"
        ) from None
    return (lambda random: random.uniform(shortest, longest)) if longest else None


def _seconds(text: str, at_least: float = 0.0) -> float:
    seconds = float(text)
    if not at_least <= seconds <= LONGEST_LATENCY:
        raise ValueError(text)
    return seconds

"""The settings of the simulated external API.

One type for the command line, `PUT /behaviour`, `GET /behaviour` and code, so that all of them use the same
names.
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from random import Random
from typing import Annotated, Any, Literal, get_args

import msgspec

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""Of all requests for orders, from 0 (none) to 1 (each)."""

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
"""The faults of which a request draws at most one; together at most 1."""

_FORMS = {"basic": "USER:PASSWORD", "key": "NAME: VALUE", "client": "ID:SECRET"}


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests for orders are answered; the default is at once and correctly.

    Ranges are checked where a value comes from outside (`checked`, `changed`, decoding JSON).

    Attributes:
        latency: seconds until the answer: `0.1`, `0.1-0.2` (uniform) or `lognormal:MEDIAN,SIGMA`.
            Refusals (401, 429, an outage) are sent at once.
        error_rate: share answered with `error_status`.
        error_status: an HTTP status from 400 to 599.
        unavailable_rate: share answered 503 with Retry-After.
        not_found_rate: share answered 404 though the order exists.
        redirect_rate: share answered 302, pointing to the same order.
        malformed_rate: share answered 200 with broken JSON.
        wrong_type_rate: share answered 200 with JSON that is not an order.
        oversize_rate: share answered 200 with a JSON body of `oversize_bytes`.
        oversize_bytes: length of that body.
        truncate_rate: share whose connection closes after half of the promised body.
        reset_rate: share whose connection is reset without an answer.
        hang_rate: share never answered; the client has to give up.
        fail_first: limit the shares above to the first n requests for each order, counted from when the
            behaviour was set; 0 is no limit.
        rate_limit: requests per second above which 429 is the answer; 0 is no limit.
        rate_burst: requests that may come at once within `rate_limit`; null is one second's worth.
        concurrency_limit: requests being answered above which 429 is the answer; 0 is no limit.
        capacity: requests processed at a time; the others wait, so that answers take longer; 0 is no limit. See `capacity`.
        capacity_queue: requests that may wait; more get a 503 without Retry-After.
        quota: requests in each `quota_window`, above which 429 is the answer until it ends; 0 is no quota.
        quota_window: seconds.
        quota_headers: how answers say what is left of it: as list `items` (draft-08 and later), as `members` (draft-07), in
            `fields` (drafts before), in fields with the prefix `x`, or `none`.
        retry_after: seconds to wait that a 429 or 503 demands.
        retry_after_format: `seconds`, an HTTP `date`, or `none` to leave it out.
        down: an outage: every request gets a `503` without Retry-After, an HTML `page`, an `empty` object or a `404`, or its
            connection is `reset`.
        token: requests without `Authorization: Bearer TOKEN` get 401. Without this and the next three, all are accepted.
        basic: `USER:PASSWORD`; requests without them in `Authorization: Basic` get 401.
        key: `NAME: VALUE`; requests without this header get 401.
        client: `ID:SECRET`; requests without a token that `POST /token` has issued to this client get 401.
        token_lifetime: seconds that such a token lasts.
        token_latency: seconds until it is issued.
        authority_down: how `POST /token` fails: `503`, `401`, `reset`, or `hang`.
        updated_at: the `updated_at` of every bundled order; null leaves it out.
        shape: serve the orders as this shop does: its path, the header of its credential, its documents; null for ours.
        list_limit: orders for which one request to the list endpoint may ask; above, 422 is the answer.
        list_shape: the answer of the list endpoint is an `object` with the member `orders`, or an `array`.
        breaking_id: any request that asks for this order, alone or among others, gets `error_status`; null for none.
        any_id: serve any well-formed ID, with a bundled order under its name.
        any_bytes: for such IDs, use only the hundred bundled orders whose documents are nearest to this length.
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
    shape: Literal["shopify", "woocommerce", "amazon"] | None = None
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
            raise ValueError(f"the shares of faults sum up to {total:g}, more than 1")


def checked(behaviour: Behaviour) -> Behaviour:
    """Return the same behaviour with every range checked.

    Raises:
        ValueError: a value is out of range (`msgspec.ValidationError` is one).
    """
    return changed(behaviour, {})


def changed(behaviour: Behaviour, changes: Mapping[str, object]) -> Behaviour:
    """Return a behaviour with some fields changed.

    Raises:
        ValueError: a field is unknown, or a value of the wrong type or out of range.
    """
    try:
        return msgspec.convert({**msgspec.to_builtins(behaviour), **changes}, Behaviour)
    except msgspec.ValidationError as error:
        raise ValueError(_with_form(_with_choices(str(error)))) from error


def _with_form(problem: str) -> str:
    """The same with the form of a text in place of the regular expression for it."""
    field = re.search(r"`\$\.(\w+)`$", problem)
    form = None if field is None else _FORMS.get(field[1])
    return problem if form is None else re.sub(r"`str` matching regex '.*'", form, problem)


def _with_choices(problem: str) -> str:
    field = re.search(r"^Invalid enum value.*`\$\.(\w+)`$", problem)
    return problem if field is None else f"{problem}: choose {', '.join(_choices(Behaviour.__annotations__[field[1]]))}"


def _choices(annotation: Any) -> list[str]:
    """The values of a `Literal`, also where it may be None."""
    parts = get_args(annotation)
    return [text for part in parts for text in ([part] if isinstance(part, str) else _choices(part))]


def parse_latency(text: str) -> Callable[[Random], float] | None:
    """Read a latency as people write it; the result draws one, in seconds. None means no latency.

    Raises:
        ValueError: the text is none of the three forms, or longer than an hour.
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
            f"{text!r} is no latency: write 0.1, 0.1-0.2 or lognormal:MEDIAN,SIGMA in seconds, at most "
            f"{LONGEST_LATENCY:.0f}"
        ) from None
    return (lambda random: random.uniform(shortest, longest)) if longest else None


def _seconds(text: str, at_least: float = 0.0) -> float:
    seconds = float(text)
    if not at_least <= seconds <= LONGEST_LATENCY:
        raise ValueError(text)
    return seconds

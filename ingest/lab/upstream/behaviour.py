"""The settings of the simulated external API.

The command line, `PUT /behaviour`, `GET /behaviour` and code share this type, so that all of them use the same names.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

import msgspec

from ingest.lab.described import choices, described
from ingest.lab.upstream.latency import Latency

Text = Annotated[str, msgspec.Meta(min_length=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
"""A share of all requests for orders, from 0 (none) to 1 (all)."""

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

_SPEED = "Latency"
FAULTS = "Faults, as shares of all requests (0 to 1, together at most 1)"
_LIMITS = "Limits and outages"
ACCESS = "Credentials and TLS"
_ORDERS = "Orders"


def _fault(text: str) -> msgspec.Meta:
    return described(FAULTS, text, show_default=False)


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The responses to requests for orders, which are immediate and correct by default.

    Ranges are checked where a value comes from outside (`changed`, decoding JSON).

    The fields are the options of `ingest upstream`. Rejections (401, 429, an outage) are sent without the latency. Of the faults
    that are shares, a request draws at most one, and with `fail_first` only the first requests for each order since the behaviour
    was set. A request to the list endpoint that includes the order `breaking_id` fails as a whole. Requests above `capacity` wait,
    see `limits.capacity`. Quotas are reported as list `items` (draft-08 and later), as `members` (draft-07), in `fields` (earlier
    drafts) or in fields with the prefix `x`. An outage is a `503` without Retry-After, an HTML `page`, an `empty` object or a `404`.
    Without a credential, all requests are accepted. With `any_id`, any well-formed ID has the document of a bundled order, which is
    one of the hundred that are closest to `any_bytes` in length.
    """

    latency: Annotated[
        str, described(_SPEED, "Seconds until the response: 0.1, 0.1-0.2 (uniform) or lognormal:MEDIAN,SIGMA.")
    ] = "0"
    error_rate: Annotated[Share, _fault("Answered with --error-status.")] = 0.0
    error_status: Annotated[int, described(FAULTS, "The status of an error.", ge=400, le=599)] = 500
    unavailable_rate: Annotated[Share, _fault("503 with Retry-After.")] = 0.0
    not_found_rate: Annotated[Share, _fault("404 though the order exists.")] = 0.0
    redirect_rate: Annotated[Share, _fault("302, pointing to the same order.")] = 0.0
    malformed_rate: Annotated[Share, _fault("200 with broken JSON.")] = 0.0
    wrong_type_rate: Annotated[Share, _fault("200 with JSON that is not an order.")] = 0.0
    oversize_rate: Annotated[Share, _fault("200 with a body of --oversize-bytes.")] = 0.0
    oversize_bytes: Annotated[int, described(FAULTS, "Length of such a body.", ge=64, le=1 << 30)] = 32 << 20
    truncate_rate: Annotated[Share, _fault("The connection closes after half of the body.")] = 0.0
    reset_rate: Annotated[Share, _fault("The connection is reset without an answer.")] = 0.0
    hang_rate: Annotated[Share, _fault("No response.")] = 0.0
    breaking_id: Annotated[Text | None, described(FAULTS, "Every request for this order gets --error-status.")] = None
    fail_first: Annotated[
        int, described(FAULTS, "Only the first n requests for each order are faulty. 0 for any.", ge=0)
    ] = 0
    rate_limit: Annotated[
        float,
        described(
            _LIMITS, "Requests per second above which it responds with 429. 0 for no limit.", ge=0, le=1_000_000_000
        ),
    ] = 0.0
    rate_burst: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None,
        described(_LIMITS, "Requests that may arrive in a burst. Defaults to the requests of one second."),
    ] = None
    concurrency_limit: Annotated[
        int, described(_LIMITS, "Concurrent requests above which it responds with 429. 0 for no limit.", ge=0)
    ] = 0
    capacity: Annotated[
        int, described(_LIMITS, "Requests processed concurrently, while others wait. 0 for no limit.", ge=0)
    ] = 0
    capacity_queue: Annotated[int, described(_LIMITS, "Requests that may wait. More get 503.", ge=0)] = 1000
    quota: Annotated[
        int,
        described(_LIMITS, "Requests in each --quota-window above which it responds with 429. 0 for no quota.", ge=0),
    ] = 0
    quota_window: Annotated[
        float, described(_LIMITS, "Seconds after which the quota is full again.", ge=0.001, le=86_400)
    ] = 60.0
    quota_headers: Annotated[
        Literal["items", "members", "fields", "x", "none"],
        described(_LIMITS, "Form of the headers with the rest of the quota."),
    ] = "items"
    retry_after: Annotated[int, described(_LIMITS, "Seconds to wait that a 429 or 503 demands.", ge=0)] = 1
    retry_after_format: Annotated[Literal["seconds", "date", "none"], described(_LIMITS, "Form of Retry-After.")] = (
        "seconds"
    )
    down: Annotated[
        Literal["503", "reset", "page", "empty", "404"] | None,
        described(_LIMITS, "An outage: each request ends like this."),
    ] = None
    token: Annotated[Text | None, described(ACCESS, "401 without this bearer token.")] = None
    basic: Annotated[
        Annotated[str, msgspec.Meta(pattern="^[^:]+:.")] | None,
        described(ACCESS, "401 without this user and password.", metavar=_FORMS["basic"]),
    ] = None
    key: Annotated[
        Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9-]+: *[^ ]")] | None,
        described(ACCESS, "401 without this header.", metavar=_FORMS["key"]),
    ] = None
    client: Annotated[
        Annotated[str, msgspec.Meta(pattern="^[^:]+:.")] | None,
        described(ACCESS, "401 without a token from POST /token for this client.", metavar=_FORMS["client"]),
    ] = None
    token_lifetime: Annotated[
        float, described(ACCESS, "Seconds that such a token lasts.", ge=0.001, le=86_400, metavar="N")
    ] = 3600.0
    token_latency: Annotated[float, described(ACCESS, "Seconds until it is issued.", ge=0, le=60, metavar="N")] = 0.0
    authority_down: Annotated[
        Literal["503", "401", "reset", "hang"] | None, described(ACCESS, "How POST /token fails.")
    ] = None
    updated_at: Annotated[
        Annotated[datetime, msgspec.Meta(tz=True)] | None,
        described(_ORDERS, "The updated_at of every order, with a time zone.", metavar="RFC 3339"),
    ] = None
    currency: Annotated[
        Annotated[str, msgspec.Meta(pattern="^[A-Z]{3}$")] | None,
        described(_ORDERS, "The currency of every order. Defaults to GBP.", metavar="CODE"),
    ] = None
    list_limit: Annotated[
        int, described(_ORDERS, "Maximum number of orders in one request to the list endpoint.", ge=1)
    ] = 250
    list_shape: Annotated[Literal["object", "array"], described(_ORDERS, "Answer of the list endpoint.")] = "object"
    any_id: Annotated[bool, described(_ORDERS, "Serve any ID, not only those bundled.", names=("--any-id",))] = False
    any_bytes: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None,
        described(_ORDERS, "Approximate length of their documents, in bytes."),
    ] = None

    def __post_init__(self) -> None:
        """Check fields that depend on each other."""
        Latency.parse(self.latency)
        total = sum(getattr(self, share) for share in SHARES)
        if total > 1 + 1e-9:
            raise ValueError(f"the shares of faults add up to {total:g}, which is more than 1")


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
    return problem if field is None else f"{problem}: choose {', '.join(choices(Behaviour.__annotations__[field[1]]))}"

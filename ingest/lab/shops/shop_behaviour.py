"""The settings of a simulated shop, which can change while it runs."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from ingest.lab.shops.shop_modes import ShopModes
from ingest.lab.upstream.behaviour import Share
from ingest.lab.upstream.latency import Latency

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class ShopBehaviour(ShopModes, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the shop behaves, in addition to its modes.

    Attributes:
        latency: seconds until a response, as `0.1`, `0.1-0.2` or `lognormal:MEDIAN,SIGMA`.
        token: the credential of the shop. Its form depends on the kind.
        client: `ID:SECRET` of the application that logs in.
        token_lifetime: seconds until an issued access token expires.
        rate_limit: requests or points per second, or 0 for the usual limits of the kind.
        rate_burst: requests or points that may be used together, or 0 for the usual number.
        throttled: whether every request is throttled.
        down: whether every request gets a 503.
        changes_per_second: orders that change by themselves. A tenth of them are new.
        late_share: share of these changes that lists contain only later.
        late: seconds until then.
        list_lag: seconds that lists of `amazon` end before the request.
        shifts: number of list pages after which one of the listed orders changes, so that the list shifts. Counts
            down.
        webhooks: URL that receives webhooks, or null for none.
        webhook_share: share of the changes that are sent there.
        webhook_secret: signs them.
    """

    latency: str = "0"
    token: Annotated[str, msgspec.Meta(min_length=1)]
    client: Annotated[str, msgspec.Meta(pattern="^[^:]+:.")]
    token_lifetime: Annotated[float, msgspec.Meta(gt=0, le=1e6)]
    rate_limit: Seconds = 0.0
    rate_burst: Annotated[int, msgspec.Meta(ge=0)] = 0
    throttled: bool = False
    down: bool = False
    changes_per_second: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 0.0
    late_share: Share = 0.0
    late: Seconds = 0.0
    list_lag: Seconds = 120.0
    shifts: Annotated[int, msgspec.Meta(ge=0)] = 0
    webhooks: str | None = None
    webhook_share: Share = 1.0
    webhook_secret: Annotated[str, msgspec.Meta(min_length=1)] = "simulated-webhook-secret"  # noqa: S105  a default for tests

    def __post_init__(self) -> None:
        """Check the latency."""
        Latency.parse(self.latency)


def changed(behaviour: ShopBehaviour, changes: Mapping[str, object]) -> ShopBehaviour:
    """Return a behaviour with some fields changed.

    Raises:
        ValueError: a field is unknown, or a value has the wrong type or is out of range.
    """
    return msgspec.convert({**msgspec.to_builtins(behaviour), **changes}, ShopBehaviour)

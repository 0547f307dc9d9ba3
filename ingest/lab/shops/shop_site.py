"""A shop's state, behaviour, issued tokens and limits, which its API and its control routes share."""

import secrets
import time
from collections.abc import Sequence
from random import Random

from ingest.lab.bucket import Bucket
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.shop_behaviour import ShopBehaviour, changed
from ingest.lab.shops.shop_state import ShopState


class ShopSite:
    """Everything that a request can depend on.

    Attributes:
        state: the orders.
        behaviour: the current settings.
        random: selects what happens to single requests.
        base_url: scheme, host and port, set when the shop listens.
        buckets: the limits in use, by name.
    """

    def __init__(self, state: ShopState, behaviour: ShopBehaviour, random: Random) -> None:
        self.state = state
        self.behaviour = behaviour
        self.random = random
        self.base_url = ""
        self.buckets: dict[str, Bucket] = {}
        self._tokens: dict[str, float] = {}

    def behave(self, **changes: object) -> None:
        """Change some fields of the behaviour.

        Raises:
            ValueError: a field is unknown, or a value is invalid.
        """
        before, self.behaviour = self.behaviour, changed(self.behaviour, changes)
        self.state.modes = self.behaviour
        if (before.rate_limit, before.rate_burst) != (self.behaviour.rate_limit, self.behaviour.rate_burst):
            self.buckets.clear()

    def bucket(self, name: str, rate: float, size: float) -> Bucket:
        """Return the bucket with this name.

        Args:
            name: such as an operation's.
            rate: usual units per second.
            size: usual units that may be used together.
        """
        if name not in self.buckets:
            behaviour = self.behaviour
            chosen = behaviour.rate_limit or rate
            # With another rate, the usual burst grows or shrinks with it.
            self.buckets[name] = Bucket(chosen, behaviour.rate_burst or max(1.0, size * chosen / rate))
        return self.buckets[name]

    def takes(self, bucket: Bucket, units: float = 1.0) -> bool:
        """Use units of a bucket, and count the request as throttled if that is not possible."""
        if not self.behaviour.throttled and bucket.take(units):
            return True
        self.state.counts["throttled"] += 1
        return False

    def issue_token(self, prefix: str) -> str:
        """Issue an access token."""
        now = time.monotonic()
        self._tokens = {token: end for token, end in self._tokens.items() if end > now}
        token = prefix + secrets.token_urlsafe(24)
        self._tokens[token] = now + self.behaviour.token_lifetime
        self.state.counts["tokens"] += 1
        return token

    def is_issued(self, token: str) -> bool:
        """Whether a token was issued and has not expired."""
        return self._tokens.get(token, 0.0) > time.monotonic()

    def revoke_tokens(self) -> None:
        """Invalidate all issued tokens."""
        self._tokens.clear()

    def page_served(self, page: Sequence[ShopOrder]) -> None:
        """Count a page of a list, and let the list shift if the behaviour demands it."""
        self.state.counts["list_requests"] += 1
        if page and self.behaviour.shifts:
            self.behave(shifts=self.behaviour.shifts - 1)
            self.state.shift(page)

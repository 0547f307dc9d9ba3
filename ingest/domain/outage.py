"""An outage of the external API, as a worker process sees it: why it sends no requests."""

import msgspec


class Outage(msgspec.Struct, frozen=True):
    """Why a circuit is open.

    Attributes:
        since: when it opened, in Unix seconds by the queue's clock.
        error: what opened it, on one line, without a secret.
    """

    since: float
    error: str

"""An outage of the external API, as a worker process sees it: why it sends no requests."""

import msgspec


class Outage(msgspec.Struct, frozen=True):
    """Why a circuit is open.

    Attributes:
        since: when it opened, in Unix seconds by the queue's clock.
        error: what opened it, on one line, without a secret.
        is_unproven: whether it opened for what responses say, such as 404, before the external API had delivered any order:
            then the orders may be at fault, and an operator has to decide.
    """

    since: float
    error: str
    is_unproven: bool = False

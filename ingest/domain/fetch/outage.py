"""An outage of the external API, during which a worker process sends no requests."""

import msgspec


class Outage(msgspec.Struct, frozen=True):
    """The reason why a circuit is open.

    Attributes:
        since: when it opened, in Unix seconds by the queue's clock.
        error: the error that opened it, on one line, without a secret.
        is_unproven: whether it opened because of responses such as 404 before the external API had delivered any order.
            The orders may then be at fault, and the operator has to decide.
    """

    since: float
    error: str
    is_unproven: bool = False

"""Why a worker process leaves the external API in peace."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenCircuit:
    """A circuit that is open.

    Attributes:
        since: when it opened, in Unix seconds by the queue's clock.
        error: what opened it, on one line, without a secret.
    """

    since: float
    error: str

"""The errors that cross packages, named for what the caller should do about them.

Three families:

* `UserError`: a person has to change something; the command line prints it as one line and exits.
* `Fault`: this one delivery cannot be finished now; the handler turns it into an outcome.
* `Unavailable`: a server cannot be used now; the caller waits and tries again, and no order is to blame.

One error is of two families: a server that refuses us. A worker with orders in flight waits, as in any outage; a command that
has none ends with one line.
"""

from ingest.domain.deliveries.delivery import DeadReason, RetryReason


class UserError(Exception):
    """Something that a person can put right; shown as one line, without a traceback."""

    exit_code = 1


class ConfigError(UserError):
    """A setting or an argument that cannot be used."""

    exit_code = 2


class Fault(Exception):
    """Why one delivery could not be finished.

    Attributes:
        retry_reason: how a retry after it is counted.
        uses_attempt: whether it may use up an attempt of the order.
        reached: whether the external API may have seen the request; if not, no order can be to blame.
    """

    retry_reason = RetryReason.HTTP_STATUS
    uses_attempt = True
    reached = True


class TransientFault(Fault):
    """A fault that trying again may cure: a reset, a timeout, a 5xx, a truncated body."""

    def __init__(self, error: str, *, reached: bool = True, reason: RetryReason = RetryReason.HTTP_STATUS) -> None:
        super().__init__(error)
        self.reached = reached
        self.retry_reason = reason


class TransportFault(TransientFault):
    """Our own client of the external API failed: a bug, or no memory or file descriptors left.

    No order is to blame, and the external API is not either; no attempt is used up.
    """

    uses_attempt = False

    def __init__(self, error: str) -> None:
        super().__init__(error, reached=False, reason=RetryReason.CLIENT)


class CredentialFault(Fault):
    """The external API rejects our credential: a person has to change something, and no order is to blame."""

    retry_reason = RetryReason.CREDENTIAL


class TokenFault(TransientFault):
    """No access token could be obtained: the authorization server is unavailable. No attempt is used up."""

    uses_attempt = False

    def __init__(self, error: str) -> None:
        super().__init__(error, reached=False, reason=RetryReason.CREDENTIAL)


class TokenRefused(CredentialFault):
    """The authorization server refuses to issue a token: a person has to change something. No attempt is used up."""

    uses_attempt = False


class PostponedFault(Fault):
    """The external API has answered that the order is not ready; by configuration it is requested again later.

    Attributes:
        after: seconds until then.
    """

    def __init__(self, error: str, after: float) -> None:
        super().__init__(error)
        self.after = after


class ThrottledFault(Fault):
    """The external API asks to wait; no attempt of the order is used up.

    Attributes:
        after: seconds to wait as the API told, None if it did not say.
    """

    retry_reason = RetryReason.THROTTLED

    def __init__(self, error: str, after: float | None = None) -> None:
        super().__init__(error)
        self.after = after


class NotSent(Fault):
    """The request was not sent, as the process stops or the external API asks to wait: nobody is at fault, and the order is released."""

    def __init__(self, reason: str = "the process stops") -> None:
        super().__init__(reason)


ASKED_TO_WAIT = "the external API asks to wait"


class PermanentFault(Fault):
    """The response says that no retry will help: the order is missing, rejected or invalid.

    An external API that fails as a whole may send the same response for every order, so the circuit breaker classifies it.

    Attributes:
        reason: why the order is dead-lettered if the fault is its own.
        shape: what the response looks like, if it has a document.
        is_configured: whether the configuration says that such a response is always about its order.
    """

    def __init__(
        self, reason: DeadReason, error: str, *, shape: str | None = None, is_configured: bool = False
    ) -> None:
        super().__init__(error)
        self.reason = reason
        self.shape = shape
        self.is_configured = is_configured


class TransformFailed(Exception):
    """A user's own function has failed for one order; the message tells what and where, and no value of the order."""


class Unavailable(Exception):
    """A server is unreachable, restarting, full or failing over: wait, then try the same again.

    Attributes:
        server: which one, for people.
    """

    server = "a server"


class QueueUnavailable(Unavailable):
    """Redis cannot be used right now.

    Attributes:
        retry_after: seconds after which to try again.
    """

    server = "Redis"
    retry_after: float = 1.0


class StoreUnavailable(Unavailable):
    """PostgreSQL cannot be used right now."""

    server = "PostgreSQL"


class StoreTooSlow(StoreUnavailable):
    """PostgreSQL did not finish a statement, or not in time: it hangs, waits for a lock, or was given too much at once."""


class StoreLocked(StoreTooSlow):
    """Another transaction holds a lock that a statement needs; nothing of it is stored."""


class StoreInterrupted(StoreUnavailable):
    """The connection was lost while a statement ran: by chance, or because the statement is too much for the server."""


class RowsRefused(Exception):
    """PostgreSQL refuses at least one row of a batch; none of them is stored.

    Attributes:
        is_certain: whether what the row holds is at fault for certain, whatever the table is like.
    """

    def __init__(self, error: str, *, is_certain: bool = False) -> None:
        super().__init__(error)
        self.is_certain = is_certain


class RowSuppressed(RowsRefused):
    """A trigger has kept a row from being stored, without an error; other rows of its statement are stored."""

    def __init__(self) -> None:
        super().__init__("a trigger kept the row from being stored")

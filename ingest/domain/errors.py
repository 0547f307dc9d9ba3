"""The errors that cross packages, named by the action that the caller should take.

Three families:

* `UserError`: the operator has to change something. The command line prints one line and exits.
* `Fault`: this delivery cannot be finished now. The handler turns it into an outcome.
* `Unavailable`: a server cannot be used now. The caller waits and retries, and no order is to blame.

A server that denies access raises an error of two families. A worker with orders in flight waits, like in any outage. A command
without orders in flight ends with one line.
"""

from ingest.domain.deliveries.delivery import DeadReason, RetryReason


class UserError(Exception):
    """A problem that the operator can fix, shown as one line without a traceback."""

    exit_code = 1


class ConfigError(UserError):
    """An invalid setting or argument."""

    exit_code = 2


class InvalidInput(UserError):
    """A value that an operation does not accept, from an option, a body or a form.

    Attributes:
        code: names the problem in responses of the HTTP API.
    """

    exit_code = 2
    code = "invalid_body"


class WorkersDiffer(UserError):
    """Workers use another version of a file that the behaviour of the source depends on. No change was made."""


class AccessDenied(UserError):
    """An account of ours lacks a right on a server. The message contains the object and the remedy.

    The server is not unavailable, and no order is to blame. Orders in flight wait until the right is granted.
    """


class Fault(Exception):
    """The reason why one delivery could not be finished.

    Attributes:
        retry_reason: the label under which a retry is counted.
        uses_attempt: whether it may use up an attempt of the order.
        reached: whether the external API may have seen the request. If not, no order can be to blame.
    """

    retry_reason = RetryReason.HTTP_STATUS
    uses_attempt = True
    reached = True


class TransientFault(Fault):
    """A fault that a retry may fix, such as a reset, a timeout, a 5xx or a truncated body."""

    def __init__(self, error: str, *, reached: bool = True, reason: RetryReason = RetryReason.HTTP_STATUS) -> None:
        super().__init__(error)
        self.reached = reached
        self.retry_reason = reason


class TransportFault(TransientFault):
    """Our own client of the external API failed because of a bug, or ran out of memory or file descriptors.

    Neither an order nor the external API is to blame, so no attempt is used up.
    """

    uses_attempt = False

    def __init__(self, error: str) -> None:
        super().__init__(error, reached=False, reason=RetryReason.CLIENT)


class CredentialFault(Fault):
    """The external API rejects our credential. The operator has to act, and no order is to blame."""

    retry_reason = RetryReason.CREDENTIAL


class ConfigurationFault(TransientFault):
    """A response that our configuration does not fit, for any order. The operator has to act, and no attempt is used up."""

    uses_attempt = False

    def __init__(self, error: str) -> None:
        super().__init__(error, reached=False)


class TokenFault(TransientFault):
    """The authorization server is unavailable, so there is no access token. No attempt is used up."""

    uses_attempt = False

    def __init__(self, error: str) -> None:
        super().__init__(error, reached=False, reason=RetryReason.CREDENTIAL)


class TokenRefused(CredentialFault):
    """The authorization server denies a token. The operator has to act, and no attempt is used up."""

    uses_attempt = False


class PostponedFault(Fault):
    """The response means, by configuration, that the order is not ready and is to be requested again later.

    Attributes:
        after: seconds until then, or None for the usual backoff.
    """

    def __init__(self, error: str, after: float | None) -> None:
        super().__init__(error)
        self.after = after


class ThrottledFault(Fault):
    """The external API throttles requests. No attempt of the order is used up.

    Attributes:
        after: seconds to wait as sent by the API, or None without a time.
    """

    retry_reason = RetryReason.THROTTLED

    def __init__(self, error: str, after: float | None = None) -> None:
        super().__init__(error)
        self.after = after


class NotSent(Fault):
    """The request was not sent because the process stops or is throttled. The order is released."""

    def __init__(self, reason: str = "the process stops") -> None:
        super().__init__(reason)


ASKED_TO_WAIT = "the external API asks to wait"


class PermanentFault(Fault):
    """No retry will help, because the order is missing, rejected or invalid.

    An external API that fails as a whole may send the same response for every order, so the circuit breaker classifies it.

    Attributes:
        reason: why the order is dead-lettered if the order is at fault.
        shape: a description of the response, if it contains a document.
        is_configured: whether the configuration attributes such a response to the order.
    """

    def __init__(
        self, reason: DeadReason, error: str, *, shape: str | None = None, is_configured: bool = False
    ) -> None:
        super().__init__(error)
        self.reason = reason
        self.shape = shape
        self.is_configured = is_configured


class ListFault(Fault):
    """A response is no page of the list of orders in the configuration. No order is to blame.

    The shop may send other pages later, or the operator has to correct the description of the list.
    """


class NoContent(PermanentFault):
    """A response without a body by its status. It is no order, but an empty list."""

    def __init__(self, status: int) -> None:
        super().__init__(DeadReason.INVALID_ORDER, f"HTTP {status} without a document")


class TransformFailed(Exception):
    """A user's function failed for one order. The message contains the error and its location, but no value of the order."""


class Unavailable(Exception):
    """A server is unreachable, restarting, full or failing over. Wait, then retry.

    Attributes:
        server: its name in messages.
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
    """PostgreSQL did not finish a statement in time, because it hangs, waits for a lock, or got too much data."""


class StoreLocked(StoreTooSlow):
    """Another transaction holds a lock that a statement needs. The statement stores no rows."""


class TableLocked(StoreUnavailable):
    """Another session has locked a table that a statement needs. The statement stores no rows. The message names both."""


class StoreInterrupted(StoreUnavailable):
    """The connection was lost while a statement ran, by chance or because the statement overloads the server."""


class RowsRefused(Exception):
    """PostgreSQL rejects at least one row of a batch, and the whole batch is not stored.

    Attributes:
        is_certain: whether the values of the row are certainly at fault, and not the table.
    """

    def __init__(self, error: str, *, is_certain: bool = False) -> None:
        super().__init__(error)
        self.is_certain = is_certain


class RowSuppressed(RowsRefused):
    """A trigger suppressed a row without an error. The other rows of the statement are stored."""

    def __init__(self) -> None:
        super().__init__("a trigger kept the row from being stored")

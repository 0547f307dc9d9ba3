"""Turns the errors of operations and of the queue into problems of unavailable servers."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

from ingest.api.http.problems import Problem
from ingest.domain.errors import (
    ConfigError,
    InvalidInput,
    QueueUnavailable,
    RowsRefused,
    StoreLocked,
    StoreTooSlow,
    StoreUnavailable,
    UserError,
    WorkersDiffer,
)
from ingest.telemetry.logs import get_logger

_log = get_logger("api")
_RETRY_AFTER = 2.0


@contextmanager
def as_problems() -> Iterator[None]:
    """Turn the errors of operations into problems."""
    try:
        yield
    except RowsRefused as error:
        raise Problem(422, "invalid_parameter", "the database cannot hold one of the values") from error
    except StoreLocked as error:
        detail = "another transaction has locked data that the request needs"
        raise busy(503, "store_unavailable", detail, _RETRY_AFTER) from error
    except StoreTooSlow as error:
        detail = "the query took too long: use fewer or other filters, or add an index"
        raise busy(503, "query_too_slow", detail, _RETRY_AFTER) from error
    except WorkersDiffer as error:
        raise Problem(409, "workers_differ", str(error)) from error
    except InvalidInput as error:
        raise Problem(422, error.code, str(error)) from error
    except StoreUnavailable as error:
        _log_refusal("postgres", error)
        raise busy(503, "store_unavailable", "the database cannot be used right now", _RETRY_AFTER) from error
    except ConfigError as error:
        # The mapping or the transform of the source, which other processes may have read before it changed.
        _log_refusal("configuration", error)
        detail = "the configuration of the source cannot be used: the log contains the reason"
        raise busy(503, "unusable_configuration", detail, _RETRY_AFTER) from error
    except QueueUnavailable as error:
        _log_refusal("redis", error)
        raise busy(503, "queue_unavailable", "the queue cannot be used right now", error.retry_after) from error


def busy(status: int, code: str, detail: str, retry_after: float) -> Problem:
    """A problem with a time after which to try again."""
    return Problem(status, code, detail, headers={"Retry-After": str(max(1, math.ceil(retry_after)))})


def _log_refusal(server: str, error: Exception) -> None:
    # The operator has to act. An outage ends by itself, and is logged elsewhere.
    if isinstance(error, UserError):
        _log.error("unavailable", server=server, error=str(error))

"""Turns the errors of operations and of the queue into problems of unavailable servers."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

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
from ingest.queue.produce.producer_errors import BacklogFull, IdempotencyKeyReused, SourcePaused
from ingest.queue.redis.connection import QueueFull
from ingest.telemetry.logs import get_logger

_log = get_logger("api")
_RETRY_AFTER = 2.0


class _Form(NamedTuple):
    """The problem of an error. Without a detail, the text of the error is shown. `server` is logged if an operator has to act."""

    status: int
    code: str
    detail: str = ""
    server: str = ""


# The first that matches.
_FORMS: Mapping[type[Exception], _Form] = {
    RowsRefused: _Form(422, "invalid_parameter", "the database cannot hold one of the values"),
    StoreLocked: _Form(503, "store_unavailable", "another transaction has locked data that the request needs"),
    StoreTooSlow: _Form(503, "query_too_slow", "the query took too long: use fewer or other filters, or add an index"),
    WorkersDiffer: _Form(409, "workers_differ"),
    StoreUnavailable: _Form(503, "store_unavailable", "the database cannot be used right now", "postgres"),
    # The mapping or the transform of the source, which other processes may have read before it changed.
    ConfigError: _Form(
        503,
        "unusable_configuration",
        "the configuration of the source cannot be used: the log contains the reason",
        "configuration",
    ),
    # The status of the draft for another payload under a known key.
    IdempotencyKeyReused: _Form(422, "idempotency_key_reused", "the Idempotency-Key was used for another payload"),
    SourcePaused: _Form(503, "source_paused"),
    BacklogFull: _Form(429, "backlog_full"),
    QueueFull: _Form(429, "queue_full", "the queue is out of memory"),
    QueueUnavailable: _Form(503, "queue_unavailable", "the queue cannot be used right now", "redis"),
}


@contextmanager
def as_problems() -> Iterator[None]:
    """Turn the errors of operations and of enqueueing into problems."""
    try:
        yield
    except InvalidInput as error:
        raise Problem(422, error.code, str(error)) from error
    except tuple(_FORMS) as error:
        form = next(form for kind, form in _FORMS.items() if isinstance(error, kind))
        # The operator has to act. An outage ends by itself, and is logged elsewhere.
        if form.server and isinstance(error, UserError):
            _log.error("unavailable", server=form.server, error=str(error))
        detail = form.detail or str(error)
        if form.status in {429, 503}:
            raise busy(form.status, form.code, detail, getattr(error, "retry_after", _RETRY_AFTER)) from error
        raise Problem(form.status, form.code, detail) from error


def busy(status: int, code: str, detail: str, retry_after: float) -> Problem:
    """A problem with a time after which to try again."""
    return Problem(status, code, detail, headers={"Retry-After": str(max(1, math.ceil(retry_after)))})

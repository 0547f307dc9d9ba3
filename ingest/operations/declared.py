"""All operations, each declared once. HTTP, the console and the documentation read here who may do it, and what the caller sees.

An operation that is audited has its name as the action in the audit log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ingest.domain.api_key import Scope


class Sees(StrEnum):
    """What the result of an operation shows to a caller, as `ingest.operations.visibility` masks it."""

    STATES = "no personal values"
    MASKED = "personal values with `personal`"
    PERSONAL = "personal values"


@dataclass(frozen=True, slots=True)
class Declaration:
    """One operation.

    Attributes:
        name: For the audit log and routes.
        summary: One line.
        scope: The scope that a caller needs.
        sees: What the result shows.
        is_audited: Whether the audit log records it.
        has_dry_run: Whether it can only show what it would change.
        of_all: Whether it concerns all sources, so that a key that is limited to sources may not use it.
        errors: The codes of its errors, each with its meaning.
    """

    name: str
    summary: str
    scope: Scope
    sees: Sees = Sees.STATES
    is_audited: bool = False
    has_dry_run: bool = False
    of_all: bool = False
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def scopes(self) -> list[Scope]:
        """All scopes that a caller needs."""
        return [self.scope, Scope.PERSONAL] if self.sees is Sees.PERSONAL else [self.scope]


STATUS_OF = {
    "order_not_found": 404,
    "dead_letter_not_found": 404,
    "job_not_found": 404,
    "backfill_not_found": 404,
    "unknown_process": 404,
    "job_state": 409,
    "backfill_ended": 409,
    "unfinished_backfill": 409,
    "no_list": 409,
    "job_output_expired": 410,
}
"""The HTTP status of each error of operations."""

_NO_JOB = {"job_not_found": "The job does not exist"}
_NO_BACKFILL = {"backfill_not_found": "The backfill does not exist"}
_NO_LIST = {"no_list": "No list is configured for the source"}
_UNFINISHED = "Another backfill of the source is unfinished, whose number is in `id`"
_READ, _OPERATE = Scope.READ, Scope.OPERATE


def _changed(name: str, summary: str) -> Declaration:
    return Declaration(name, summary, _OPERATE, is_audited=True, has_dry_run=True)


_DECLARED = (
    Declaration("orders.announce", "Announce orders", Scope.ENQUEUE),
    Declaration("orders.push", "Push a whole order", Scope.PUSH),
    Declaration("orders.list", "List stored orders", _READ, Sees.MASKED),
    Declaration(
        "orders.show", "Find an order", _READ, Sees.MASKED, errors={"order_not_found": "The order was not found"}
    ),
    Declaration("orders.history", "Show the history of an order", _READ),
    Declaration("orders.read", "Show the raw document of an order", _READ, Sees.PERSONAL, is_audited=True),
    Declaration("orders.erase", "Erase an order for good", Scope.ERASE, is_audited=True),
    Declaration("orders.refetch", "Fetch an order again", _OPERATE, is_audited=True),
    Declaration("orders.enqueue", "Fetch many orders again", _OPERATE, is_audited=True),
    _changed("orders.remap", "Rebuild orders from stored documents"),
    Declaration("orders.preview", "Preview which fields a fetch would change", _OPERATE, Sees.MASKED, is_audited=True),
    Declaration("sources.list", "List the sources", _READ),
    Declaration("queue.show", "Show the state of the queue", _READ),
    Declaration("queue.consumers", "List the consumers of the queue", _READ),
    Declaration("retries.list", "List orders that wait for a retry", _READ),
    Declaration("retries.groups", "Group retries by reason and error", _READ),
    _changed("retries.run_now", "Run retries now"),
    _changed("retries.dead_letter", "Dead-letter retries"),
    Declaration("dead_letters.list", "List dead letters", _READ),
    Declaration("dead_letters.groups", "Group dead letters by reason and error", _READ),
    Declaration(
        "dead_letters.read",
        "Show a dead letter",
        _READ,
        Sees.MASKED,
        is_audited=True,
        errors={"dead_letter_not_found": "There is no such dead letter"},
    ),
    Declaration("dead_letters.export", "Download dead letters", _READ, Sees.PERSONAL, is_audited=True),
    _changed("dead_letters.replay", "Replay dead letters"),
    _changed("dead_letters.drop", "Delete dead letters"),
    Declaration("controls.show", "Show the pause and the changed limits", _READ),
    _changed("pause", "Pause a source"),
    _changed("resume", "Resume a source"),
    _changed("tune", "Change the limits of a running source"),
    Declaration("tune.reset", "Return to the configured limits", _OPERATE, is_audited=True),
    Declaration("workers.list", "List the worker processes", _READ),
    Declaration(
        "drain",
        "Drain worker processes",
        _OPERATE,
        is_audited=True,
        has_dry_run=True,
        of_all=True,
        errors={"unknown_process": "No worker process has this name, or nothing with this name is drained"},
    ),
    Declaration("drain.undo", "Let drained worker processes continue", _OPERATE, is_audited=True, of_all=True),
    Declaration("log_level", "Change the log level of running workers", _OPERATE, is_audited=True, of_all=True),
    Declaration("jobs.list", "List jobs", _READ, Sees.MASKED),
    Declaration("jobs.start", "Start a job", _OPERATE, Sees.MASKED),
    Declaration("jobs.show", "Show a job", _READ, Sees.MASKED, errors=_NO_JOB),
    Declaration("jobs.read", "Show the result of a preview", _READ, Sees.MASKED, is_audited=True),
    Declaration(
        "jobs.download",
        "Download an export",
        _READ,
        Sees.PERSONAL,
        is_audited=True,
        errors=_NO_JOB
        | {"job_state": "It is no export, or it is not done", "job_output_expired": "The file was deleted"},
    ),
    Declaration(
        "jobs.cancel",
        "Cancel a job",
        _OPERATE,
        Sees.MASKED,
        is_audited=True,
        errors=_NO_JOB | {"job_state": "It has already ended"},
    ),
    Declaration(
        "jobs.resume",
        "Resume a job",
        _OPERATE,
        Sees.MASKED,
        is_audited=True,
        errors=_NO_JOB | {"job_state": "It is done, it is running, or it is a backfill"},
    ),
    Declaration("backfills.list", "List backfills", _READ),
    Declaration(
        "backfills.start",
        "Start a backfill",
        _OPERATE,
        is_audited=True,
        has_dry_run=True,
        errors={"unfinished_backfill": _UNFINISHED} | _NO_LIST,
    ),
    Declaration("backfills.show", "Show a backfill", _READ, errors=_NO_BACKFILL),
    Declaration(
        "backfills.cancel",
        "Cancel a backfill",
        _OPERATE,
        is_audited=True,
        errors=_NO_BACKFILL | {"backfill_ended": "It has already ended"},
    ),
    Declaration(
        "backfills.resume",
        "Resume a backfill",
        _OPERATE,
        is_audited=True,
        errors=_NO_BACKFILL
        | {"backfill_ended": "It is done", "unfinished_backfill": f"It is running. {_UNFINISHED}"}
        | _NO_LIST,
    ),
    Declaration("audit.list", "List manual changes", _READ, Sees.MASKED),
    Declaration("settings.show", "Show the settings without secrets", _READ),
    Declaration("console", "Use the console", _READ),
)
DECLARED: Mapping[str, Declaration] = {each.name: each for each in _DECLARED}
"""By name."""

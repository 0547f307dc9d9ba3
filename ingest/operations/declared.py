"""All operations, each declared once. HTTP, the console and the documentation read here who may do it, and what the caller sees.

An operation that is audited has its name as the action in the audit log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ingest.domain.api_key import Scope
from ingest.domain.operating.jobs import JobKind


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
    "workers_differ": 409,
    "backfill_ended": 409,
    "unfinished_backfill": 409,
    "no_list": 409,
    "job_output_expired": 410,
}
"""The HTTP status of each error of operations."""


_Errors = Mapping[str, str]
_NONE: _Errors = {}
_JOB = {"job_not_found": "The job does not exist"}
_BACKFILL = {"backfill_not_found": "The backfill does not exist"}
_NO_LIST = {"no_list": "No list is configured for the source"}
_UNFINISHED = "Another backfill of the source is unfinished, whose number is in `id`"
_ENTRY = {"dead_letter_not_found": "There is no such dead letter"}
_PROCESS = {"unknown_process": "No worker process has this name, or nothing with this name is drained"}
_FILE = {"job_state": "It is no export, or it is not done", "job_output_expired": "The file was deleted"}
_DIFFER = {"workers_differ": "Workers use another version of a file, and no order was changed"}
_RESUMED = {"backfill_ended": "It is done", "unfinished_backfill": f"It is running. {_UNFINISHED}"}


def _read(name: str, summary: str, sees: Sees = Sees.STATES, errors: _Errors = _NONE) -> Declaration:
    return Declaration(name, summary, Scope.READ, sees, is_audited=sees is Sees.PERSONAL, errors=errors)


def _changed(name: str, summary: str, sees: Sees = Sees.STATES, errors: _Errors = _NONE) -> Declaration:
    return Declaration(name, summary, Scope.OPERATE, sees, is_audited=True, errors=errors)


def _tried(name: str, summary: str, errors: _Errors = _NONE) -> Declaration:
    return Declaration(name, summary, Scope.OPERATE, is_audited=True, has_dry_run=True, errors=errors)


_DECLARED = (
    Declaration("orders.announce", "Announce orders", Scope.ENQUEUE),
    Declaration("orders.push", "Push a whole order", Scope.PUSH),
    _read("orders.list", "List stored orders", Sees.MASKED),
    _read("orders.show", "Find an order", Sees.MASKED, {"order_not_found": "The order was not found"}),
    _read("orders.history", "Show the history of an order"),
    READ_DOCUMENT := _read("orders.read", "Show the raw document of an order", Sees.PERSONAL),
    ERASE := Declaration("orders.erase", "Erase an order for good", Scope.ERASE, is_audited=True),
    REFETCH := _changed("orders.refetch", "Fetch an order again", errors=_DIFFER),
    _changed(JobKind.ENQUEUE.action, "Fetch many orders again", errors=_DIFFER),
    _tried(JobKind.REMAP.action, "Rebuild orders from stored documents", _DIFFER),
    _changed(JobKind.PREVIEW.action, "Preview which fields a fetch would change", Sees.MASKED),
    _read("sources.list", "List the sources"),
    _read("queue.show", "Show the state of the queue"),
    _read("queue.consumers", "List the consumers of the queue"),
    _read("retries.list", "List orders that wait for a retry"),
    _read("retries.groups", "Group retries by reason and error"),
    _tried(JobKind.RUN_NOW.action, "Run retries now"),
    _tried(JobKind.DEAD_LETTER.action, "Dead-letter retries"),
    _read("dead_letters.list", "List dead letters"),
    _read("dead_letters.groups", "Group dead letters by reason and error"),
    READ_DEAD_LETTER := replace(_read("dead_letters.read", "Show a dead letter", Sees.MASKED, _ENTRY), is_audited=True),
    EXPORT := _read(JobKind.EXPORT.action, "Download dead letters", Sees.PERSONAL),
    _tried(JobKind.REPLAY.action, "Replay dead letters"),
    _tried(JobKind.DROP.action, "Delete dead letters"),
    _read("controls.show", "Show the pause and the changed limits"),
    PAUSE := _tried("pause", "Pause a source"),
    RESUME := _tried("resume", "Resume a source"),
    TUNE := _tried("tune", "Change the limits of a running source"),
    RESET_TUNING := _changed("tune.reset", "Return to the configured limits"),
    _read("workers.list", "List the worker processes"),
    DRAIN := replace(_tried("drain", "Drain worker processes", _PROCESS), of_all=True),
    UNDRAIN := replace(_changed("drain.undo", "Let drained worker processes continue"), of_all=True),
    LOG_LEVEL := replace(_changed("log_level", "Change the log level of running workers"), of_all=True),
    _read("jobs.list", "List jobs", Sees.MASKED),
    # The audit log names a job by its kind.
    Declaration("jobs.start", "Start a job", Scope.OPERATE, Sees.MASKED, errors=_DIFFER),
    _read("jobs.show", "Show a job", Sees.MASKED, _JOB),
    READ_PREVIEW := replace(_read("jobs.read", "Show the result of a preview", Sees.MASKED), is_audited=True),
    DOWNLOAD := _read("jobs.download", "Download an export", Sees.PERSONAL, _JOB | _FILE),
    CANCEL_JOB := _changed("jobs.cancel", "Cancel a job", Sees.MASKED, _JOB | {"job_state": "It has already ended"}),
    RESUME_JOB := _changed(
        "jobs.resume",
        "Resume a job",
        Sees.MASKED,
        _JOB | _DIFFER | {"job_state": "It is done, it is running, or it is a backfill"},
    ),
    _read("backfills.list", "List backfills"),
    _tried(JobKind.BACKFILL.action, "Start a backfill", {"unfinished_backfill": _UNFINISHED} | _NO_LIST),
    _read("backfills.show", "Show a backfill", errors=_BACKFILL),
    CANCEL_BACKFILL := _changed(
        "backfills.cancel", "Cancel a backfill", errors=_BACKFILL | {"backfill_ended": "It has already ended"}
    ),
    RESUME_BACKFILL := _changed("backfills.resume", "Resume a backfill", errors=_BACKFILL | _RESUMED | _NO_LIST),
    _read("audit.list", "List manual changes", Sees.MASKED),
    _read("settings.show", "Show the settings without secrets"),
    _read("console", "Use the console"),
)
DECLARED: Mapping[str, Declaration] = {each.name: each for each in _DECLARED}
"""By name."""
ENQUEUE_DIFFERING = _changed("reconcile.enqueue", "Enqueue the orders that differ from a list")
"""Of a command only, so that no key has it."""
RECORDED_OF_COMMANDS = (DECLARED["orders.announce"], ENQUEUE_DIFFERING)
"""The audit log records these for commands only. Over HTTP, producers announce orders all day."""

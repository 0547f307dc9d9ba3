"""The OpenAPI documentation of the routes that control workers."""

from ingest.api.documentation.documentation import Documentation
from ingest.api.documentation.operations_documentation import MALFORMED
from ingest.api.http.json_responses import JSON
from ingest.api.operations.control_bodies import DrainBody, LogLevelBody, PauseBody, ResumeBody, TuneBody
from ingest.api.operations.control_results import DrainResult, PauseResult, ResumeResult, ShownControls, TuneResult
from ingest.operations.control.controls import Overview

_AUDITED = "The audit log records it."
_NOT_JSON = {415: "The body is not JSON, or is compressed."}

SHOW = Documentation(
    summary="Show the pause and the changed limits",
    text="Of a source.",
    response="The controls.",
    schema=ShownControls,
    problems=MALFORMED,
)
PAUSE = Documentation(
    summary="Pause a source",
    text="Within two seconds, workers request no more of its orders. Requests in flight finish, and all other orders wait. Lists are still "
    f"read, unless `hold_polls` is set. A repeated request replaces the pause. A dry run counts the orders that would wait. {_AUDITED}",
    bodies={JSON: PauseBody},
    response="The pause.",
    schema=PauseResult,
    problems={**_NOT_JSON, 422: "The duration or the reason is invalid."},
)
RESUME = Documentation(
    summary="Resume a source",
    text=f"Workers continue within two seconds. A source that is not paused stays as it is. {_AUDITED}",
    bodies={JSON: ResumeBody},
    response="Whether the source was paused.",
    schema=ResumeResult,
    problems={**_NOT_JSON, 422: "The body is invalid."},
)
TUNE = Documentation(
    summary="Change the limits of a running source",
    text="A limit that is left out stays as it is. The change survives restarts, until `reset`. Sources that share a quota get the same "
    f"rate. {_AUDITED}",
    bodies={JSON: TuneBody},
    response="The changed limits.",
    schema=TuneResult,
    problems={**_NOT_JSON, 422: "There is no limit, or a limit is out of range."},
)
WORKERS = Documentation(
    summary="List the worker processes",
    text="With their drains, and with the changed limits and log levels of the deployment. For keys that are not limited to sources.",
    response="The worker processes with a heartbeat, by name.",
    schema=Overview,
    problems=MALFORMED,
)
DRAIN = Documentation(
    summary="Drain worker processes",
    text="Within two seconds, the processes of a host, of one `ingest worker`, or a single process begin no orders. Requests in flight "
    f"finish, and other processes take the rest. `undo` ends a drain. {_AUDITED}",
    bodies={JSON: DrainBody},
    response="The names of the processes.",
    schema=DrainResult,
    problems={
        404: "No worker process has this name, or nothing with this name is drained (`unknown_process`).",
        **_NOT_JSON,
        422: "The body is invalid.",
    },
)
LOG_LEVEL = Documentation(
    summary="Change the log level of running workers",
    text=f"On one host, or on all hosts. Null returns to the configured level. {_AUDITED}",
    bodies={JSON: LogLevelBody},
    response="The level.",
    schema=LogLevelBody,
    problems={**_NOT_JSON, 422: "The level is unknown."},
)

"""The OpenAPI documentation of the routes that control workers."""

from ingest.api.documentation.documentation import Documentation
from ingest.api.http.json_responses import JSON
from ingest.api.operations.control_bodies import DrainBody, LogLevelBody, PauseBody, ResumeBody, TuneBody
from ingest.api.operations.control_results import DrainResult, PauseResult, ResumeResult, ShownControls, TuneResult
from ingest.operations.control.controls import Overview

SHOW = Documentation(
    text="Of a source.",
    schema=ShownControls,
)
PAUSE = Documentation(
    text="Within two seconds, workers request no more of its orders. Requests in flight finish, and all other orders wait. Lists are still "
    "read, unless `hold_polls` is set. A repeated request replaces the pause. A dry run counts the orders that would wait.",
    bodies={JSON: PauseBody},
    schema=PauseResult,
    problems={422: "The duration or the reason is invalid."},
)
RESUME = Documentation(
    text="Workers continue within two seconds. A source that is not paused stays as it is.",
    bodies={JSON: ResumeBody},
    response="Whether the source was paused.",
    schema=ResumeResult,
    problems={422: "The body is invalid."},
)
TUNE = Documentation(
    text="A limit that is left out stays as it is. The change survives restarts, until `reset`. Sources that share a quota get the same "
    "rate.",
    bodies={JSON: TuneBody},
    schema=TuneResult,
    problems={422: "There is no limit, or a limit is out of range."},
)
WORKERS = Documentation(
    text="With their drains, and with the changed limits and log levels of the deployment. A key that is limited to sources sees their "
    "limits and entries only.",
    response="The worker processes with a heartbeat, by name.",
    schema=Overview,
)
DRAIN = Documentation(
    text="Within two seconds, the processes of a host, of one `ingest worker`, or a single process begin no orders. Requests in flight "
    "finish, and other processes take the rest. `undo` ends a drain.",
    bodies={JSON: DrainBody},
    response="The names of the processes.",
    schema=DrainResult,
    problems={
        422: "The body is invalid.",
    },
)
LOG_LEVEL = Documentation(
    text="On one host, or on all hosts. Null returns to the configured level.",
    bodies={JSON: LogLevelBody},
    schema=LogLevelBody,
    problems={422: "The level is unknown."},
)

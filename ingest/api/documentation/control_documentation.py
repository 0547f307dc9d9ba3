"""The OpenAPI documentation of the routes that control workers."""

from ingest.api.documentation.documentation import TEXT, Documentation, Schema, object_schema
from ingest.api.documentation.operations_documentation import COUNT, MALFORMED, TIME
from ingest.api.http.json_responses import JSON
from ingest.api.operations.control_bodies import DrainBody, LogLevelBody, PauseBody, ResumeBody, TuneBody

_FLAG: Schema = {"type": "boolean"}
_OPTIONAL_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
_PAUSE: Schema = {
    "description": "The pause, or null if the source is not paused.",
    "oneOf": [
        {"type": "null"},
        object_schema(
            "since",
            "until",
            "by",
            "reason",
            "rejects_orders",
            "holds_polls",
            "lasted",
            "left",
            since=TIME,
            until=_OPTIONAL_TIME,
            by=TEXT,
            reason=TEXT,
            rejects_orders=_FLAG,
            holds_polls=_FLAG,
            lasted={"type": "number", "description": "Seconds since its begin."},
            left={"type": ["number", "null"], "description": "Seconds until its end, or null if it has to be resumed."},
        ),
    ],
}
_LIMITS: Schema = {
    "description": "The changed limits, or null if the configured ones apply.",
    "oneOf": [
        {"type": "null"},
        object_schema(
            "concurrency",
            "rate",
            "since",
            "by",
            concurrency={"type": ["integer", "null"]},
            rate={"type": ["number", "null"]},
            since=TIME,
            by=TEXT,
        ),
    ],
}
_LIST: Schema = {"type": "array", "items": {"type": "object"}}
_NAMES: Schema = {"type": "array", "items": TEXT}
_AUDITED = "The audit log records it."
_NOT_JSON = {415: "The body is not JSON, or is compressed."}
_COUNTED = {"waiting": COUNT, "pending": COUNT}

SHOW = Documentation(
    summary="Show the pause and the changed limits",
    text="Of a source.",
    response="The controls.",
    schema=object_schema("source", "pause", "limits", source=TEXT, pause=_PAUSE, limits=_LIMITS),
    problems=MALFORMED,
)
PAUSE = Documentation(
    summary="Pause a source",
    text="Within two seconds, no request to its external API begins. Requests in flight finish, and all other orders wait. See the page "
    f"on pausing. A repeated request replaces the pause. A dry run counts the orders that would wait. {_AUDITED}",
    bodies={JSON: PauseBody},
    response="The pause.",
    schema=object_schema("dry_run", "source", "pause", dry_run=_FLAG, source=TEXT, pause=_PAUSE, **_COUNTED),
    problems={**_NOT_JSON, 422: "The duration or the reason is invalid."},
)
RESUME = Documentation(
    summary="Resume a source",
    text=f"Workers continue within two seconds. A source that is not paused stays as it is. {_AUDITED}",
    bodies={JSON: ResumeBody},
    response="Whether the source was paused.",
    schema=object_schema("dry_run", "source", dry_run=_FLAG, source=TEXT, resumed=_FLAG, pause=_PAUSE, **_COUNTED),
    problems={**_NOT_JSON, 422: "The body is invalid."},
)
TUNE = Documentation(
    summary="Change the limits of a running source",
    text="A limit that is left out stays as it is. The change survives restarts, until `reset`. Sources that share a quota get the same "
    f"rate. {_AUDITED}",
    bodies={JSON: TuneBody},
    response="The changed limits.",
    schema=object_schema("dry_run", "source", "limits", dry_run=_FLAG, source=TEXT, limits=_LIMITS),
    problems={**_NOT_JSON, 422: "There is no limit, or a limit is out of range."},
)
WORKERS = Documentation(
    summary="List the worker processes",
    text="With their drains, and with the changed limits and log levels of the deployment. For keys that are not limited to sources.",
    response="The worker processes with a heartbeat, by name.",
    schema=object_schema(
        "workers",
        "tunings",
        "drains",
        "log_levels",
        workers={
            "type": "array",
            "items": object_schema("name", "pending", "drained", name=TEXT, pending=COUNT, drained=_FLAG),
        },
        tunings=_LIST,
        drains=_LIST,
        log_levels=_LIST,
    ),
    problems=MALFORMED,
)
DRAIN = Documentation(
    summary="Drain worker processes",
    text="Within two seconds, the processes of a host, of one `ingest worker`, or a single process begin no orders. Requests in flight "
    f"finish, and other processes take the rest. `undo` ends a drain. {_AUDITED}",
    bodies={JSON: DrainBody},
    response="The names of the processes.",
    schema=object_schema("dry_run", "target", "workers", dry_run=_FLAG, target=TEXT, workers=_NAMES),
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
    schema=object_schema("host", "level", host=TEXT, level={"type": ["string", "null"]}),
    problems={**_NOT_JSON, 422: "The level is unknown."},
)

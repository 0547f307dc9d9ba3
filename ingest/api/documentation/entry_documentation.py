"""The OpenAPI documentation of the routes of dead letters and retries."""

from ingest.api.documentation.documentation import TEXT, Documentation, Parameter, Schema, object_schema
from ingest.api.documentation.operations_documentation import (
    COUNT,
    LISTED,
    MALFORMED,
    TIME,
    page_schema,
    paging,
    several,
)
from ingest.api.http.json_responses import JSON
from ingest.api.operations.selections import DeadLettersBody, RetriesBody
from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.operating.jobs import JobKind
from ingest.operations.failed_orders.dead_letter_export import FORMATS

_FLAG: Schema = {"type": "boolean"}
_OPTIONAL: Schema = {"type": ["string", "null"]}

_MISSING: Schema = {
    "type": "array",
    "description": "Partitions whose server cannot be used, so that their entries are missing.",
    "items": object_schema("queue", "server", "kind", "error", queue=TEXT, server=TEXT, kind=TEXT, error=TEXT),
}


def _change(summary: str, text: str, body: type) -> Documentation:
    return Documentation(
        summary=summary,
        text=f"{text} The audit log records each change.",
        bodies={JSON: body},
        response="The number of entries.",
        schema=object_schema(
            "dry_run",
            "count",
            "missing_partitions",
            dry_run=_FLAG,
            count=COUNT,
            gone=COUNT,
            reasons={"type": "object"},
            missing_partitions=_MISSING,
        ),
        problems={
            415: "The body is not JSON, or is compressed.",
            422: "The body does not select anything, or contradicts itself. To select everything, set `everything`.",
        },
    )


_FILTER = [
    Parameter("text", "query", "Only with this text in the order ID or the error, in upper or lower case."),
    Parameter("shape", "query", "Only with this error shape, or with the shape of this error."),
    several("attribute", "Only with this field of the entry, as `name=value`, such as `origin=api`."),
]
_GROUPS = object_schema(
    "groups",
    "examined",
    "total",
    "age",
    "problem",
    "missing_partitions",
    groups={
        "type": "array",
        "items": object_schema(
            "source",
            "reason",
            "shape",
            "count",
            "newest",
            "oldest",
            "error",
            "order_ids",
            source=TEXT,
            reason=TEXT,
            shape={**TEXT, "description": "The error with placeholders for numbers, IDs, times and quoted values."},
            count=COUNT,
            newest=_OPTIONAL,
            oldest=_OPTIONAL,
            error={**TEXT, "description": "The error of one of them."},
            order_ids={"type": "array", "items": TEXT, "description": "A few of the orders."},
        ),
    },
    examined={**COUNT, "description": "Entries that were read so far."},
    total={**COUNT, "description": "Entries that there are."},
    age={"type": "number", "description": "Seconds since the groups were complete, if there is a problem."},
    problem={**TEXT, "description": "Why newer groups cannot be read, or empty."},
    missing_partitions=_MISSING,
)
_SELECTED = {
    EntryKind.RETRIES: [
        several("order_id", "Only these orders."),
        several("reason", f"Only for these reasons: {', '.join(RetryReason)}."),
        Parameter("since", "query", "Only of orders that were first enqueued at this time or later.", TIME),
        Parameter("until", "query", "Only of orders that were first enqueued before this time.", TIME),
        *_FILTER,
    ],
    EntryKind.DEAD_LETTERS: [
        several("id", "Only dead letters with this ID, or of this order."),
        several("reason", "Only for these reasons."),
        Parameter("since", "query", "Only dead-lettered at this time or later.", TIME),
        Parameter("until", "query", "Only dead-lettered before this time.", TIME),
        *_FILTER,
    ],
}


def _list(kind: EntryKind, summary: str, order: str) -> Documentation:
    return Documentation(
        summary=summary,
        text=f"{order} A page before the last one may contain fewer elements than the limit, or none.",
        parameters=[*paging(500), *_SELECTED[kind]],
        response=LISTED,
        schema=page_schema(kind.value, missing_partitions=_MISSING),
        problems=MALFORMED,
    )


def _groups(kind: EntryKind) -> Documentation:
    return Documentation(
        summary=f"Group {kind.nouns} by reason and error",
        text="The largest group first. Many entries are read in the background. Until `examined` reaches `total`, repeat the request.",
        response="The groups.",
        schema=_GROUPS,
        problems=MALFORMED,
    )


LISTS = {
    EntryKind.RETRIES: _list(EntryKind.RETRIES, "List orders that wait for a retry", "The soonest first."),
    EntryKind.DEAD_LETTERS: _list(EntryKind.DEAD_LETTERS, "List dead letters", "The newest first, without documents."),
}
GROUPS = {kind: _groups(kind) for kind in EntryKind}
CHANGES = {
    JobKind.RUN_NOW: _change("Run retries now", "Workers read them within a second or two.", RetriesBody),
    JobKind.DEAD_LETTER: _change(
        "Dead-letter retries", "They become dead letters with the reason `attempts_exhausted`.", RetriesBody
    ),
    JobKind.REPLAY: _change("Replay dead letters", "They go back into the queue with fresh attempts.", DeadLettersBody),
    JobKind.DROP: _change("Delete dead letters", "Permanently.", DeadLettersBody),
}
EXPORT = Documentation(
    summary="Download dead letters",
    text="A file with all dead letters that match and all their fields, partition by partition, the oldest first. If the download "
    "breaks off, `after` continues it. While partitions cannot be read, their dead letters are missing, the header `Missing-Partitions` "
    "names them as a list in JSON, and the name of the file contains `incomplete`.",
    parameters=[
        Parameter("format", "query", "The format of the file.", {"enum": [*FORMATS]}),
        Parameter(
            "after", "query", "The ID of the last dead letter of an incomplete download. The file begins after it."
        ),
        *_SELECTED[EntryKind.DEAD_LETTERS],
    ],
    response="JSON lines or CSV.",
    schema=None,
    others=dict.fromkeys(FORMATS.values(), TEXT),
    problems=MALFORMED,
)
SHOW_DEAD_LETTER = Documentation(
    summary="Show a dead letter",
    text="With all its fields, including its document.",
    parameters=[Parameter("entry", "path", "The dead letter's own ID.", is_required=True)],
    response="The dead letter.",
    schema=object_schema("id", "source", "order_id", "reason", "fields"),
    problems={404: "There is no such dead letter.", **MALFORMED},
)

"""The OpenAPI documentation of the routes of dead letters and retries."""

from ingest.api.documentation.documentation import TEXT, Documentation, Parameter
from ingest.api.documentation.operations_documentation import TIME, paging, several
from ingest.api.http.json_responses import JSON
from ingest.api.operations.selections import DeadLettersBody, RetriesBody
from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.operating.jobs import JobKind
from ingest.operations.failed_orders.dead_letter_export import FORMATS
from ingest.operations.failed_orders.entry_json import (
    DeadLetterList,
    EntryChange,
    GroupList,
    RetryList,
    ShownDeadLetter,
)


def _change(text: str, body: type) -> Documentation:
    return Documentation(
        text=text,
        bodies={JSON: body},
        schema=EntryChange,
        problems={
            422: "The body does not select anything, or contradicts itself. To select everything, set `everything`."
        },
    )


_FILTER = [
    Parameter("text", "query", "Only with this text in the order ID or the error, in upper or lower case."),
    Parameter("shape", "query", "Only with this error shape, or with the shape of this error."),
    several("attribute", "Only with this field of the entry, as `name=value`, such as `origin=api`."),
]
_PAGES = {EntryKind.RETRIES: RetryList, EntryKind.DEAD_LETTERS: DeadLetterList}
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


def _list(kind: EntryKind, order: str) -> Documentation:
    return Documentation(
        text=f"{order} A page before the last one may contain fewer elements than the limit, or none.",
        parameters=[*paging(500), *_SELECTED[kind]],
        schema=_PAGES[kind],
    )


LISTS = {
    EntryKind.RETRIES: _list(EntryKind.RETRIES, "The soonest first."),
    EntryKind.DEAD_LETTERS: _list(EntryKind.DEAD_LETTERS, "The newest first, without documents."),
}
GROUPS = Documentation(
    text="The largest group first. Many entries are read in the background. Until `examined` reaches `total`, repeat the request.",
    schema=GroupList,
)
CHANGES = {
    JobKind.RUN_NOW: _change("Workers read them within a second or two.", RetriesBody),
    JobKind.DEAD_LETTER: _change("They become dead letters with the reason `attempts_exhausted`.", RetriesBody),
    JobKind.REPLAY: _change("They go back into the queue with fresh attempts.", DeadLettersBody),
    JobKind.DROP: _change("Permanently.", DeadLettersBody),
}
EXPORT = Documentation(
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
)
SHOW_DEAD_LETTER = Documentation(
    text="With all its fields, including its document.",
    parameters=[Parameter("entry", "path", "The dead letter's own ID.", is_required=True)],
    schema=ShownDeadLetter,
)

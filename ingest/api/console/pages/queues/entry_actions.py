"""The changes of dead letters and retries, and exports, as the pages show them."""

from collections.abc import Sequence
from dataclasses import dataclass

from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.operating.jobs import JobKind


@dataclass(frozen=True, slots=True)
class EntryAction:
    """A change or an export that a job makes.

    Attributes:
        entries: The kind of the entries.
        kind: The kind of the job.
        label: The label of the button.
        text: Describes the effect.
        style: The style of the button.
    """

    entries: EntryKind
    kind: JobKind
    label: str
    text: str
    style: str = ""

    @property
    def path(self) -> str:
        """The path of its preview, below `/console`."""
        # `export` is a download.
        return f"/{self.entries.path}/{'export-job' if self.kind is JobKind.EXPORT else self.kind.path}"

    def of(self, which: str) -> str:
        """Return the label with an object: `Run selected now…`."""
        verb, *rest = self.label.split()
        return " ".join((verb, which, *rest)) + "…"


ACTIONS: Sequence[EntryAction] = (
    EntryAction(
        EntryKind.DEAD_LETTERS,
        JobKind.REPLAY,
        "Replay",
        "They return to the queue with fresh attempts, and workers fetch them before other orders.",
    ),
    EntryAction(
        EntryKind.DEAD_LETTERS,
        JobKind.DROP,
        "Drop",
        "They are deleted for good. Their orders are not stored unless they are enqueued again.",
        "danger",
    ),
    EntryAction(
        EntryKind.DEAD_LETTERS,
        JobKind.EXPORT,
        "Export",
        "They are written to a file with all their fields, and do not change. You can download it for 7 days.",
    ),
    EntryAction(
        EntryKind.RETRIES,
        JobKind.RUN_NOW,
        "Run now",
        "Their next attempt is due now, and workers begin it within seconds.",
    ),
    EntryAction(
        EntryKind.RETRIES,
        JobKind.DEAD_LETTER,
        "Dead-letter",
        "They become dead letters with the reason attempts_exhausted, and can be replayed later.",
        "danger",
    ),
)


def actions_of(kind: EntryKind) -> Sequence[EntryAction]:
    """Return the actions of a kind of entries."""
    return [action for action in ACTIONS if action.entries is kind]

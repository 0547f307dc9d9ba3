"""The two kinds of failed entries: dead letters, and retries."""

from enum import StrEnum

from ingest.domain.deliveries.delivery import DeadReason, RetryReason


class EntryKind(StrEnum):
    """A kind of failed entries, named as in JSON, jobs and the audit log."""

    DEAD_LETTERS = "dead_letters"
    RETRIES = "retries"

    @property
    def noun(self) -> str:
        """The name of one entry."""
        return "dead letter" if self is EntryKind.DEAD_LETTERS else "retry"

    @property
    def nouns(self) -> str:
        """The name of several entries."""
        return self.value.replace("_", " ")

    @property
    def path(self) -> str:
        """The first part of the paths of its routes and pages."""
        return self.value.replace("_", "-")

    @property
    def reasons(self) -> type[DeadReason | RetryReason]:
        """The reasons of its entries."""
        return DeadReason if self is EntryKind.DEAD_LETTERS else RetryReason

"""A selection of orders that wait for their next attempt."""

from dataclasses import dataclass

from ingest.domain.deliveries.dead_letter import InvalidSelection
from ingest.domain.orders.order_state import RetryEntry


@dataclass(frozen=True, slots=True)
class RetrySelection:
    """The retries that match every given criterion.

    Attributes:
        ids: IDs of orders, of which one must match.
        reasons: reasons, of which one must match (see `RetryReason`).
        everything: all retries. It is explicit, so that an empty list of criteria never selects everything.

    Raises:
        InvalidSelection: if there is no criterion, or a criterion with `everything`.
    """

    ids: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    everything: bool = False

    def __post_init__(self) -> None:
        if bool(self.ids or self.reasons) == self.everything:
            raise InvalidSelection("a selection needs either criteria or everything")

    def matches(self, entry: RetryEntry) -> bool:
        """Return whether this entry matches."""
        return (not self.ids or entry.order_id in self.ids) and (not self.reasons or entry.reason in self.reasons)

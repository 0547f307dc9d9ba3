"""Reads the version of an order from the body of a webhook."""

from dataclasses import dataclass
from datetime import UTC, datetime

from multidict import MultiMapping

from ingest.api.webhooks.places import PathPlace


@dataclass(frozen=True, slots=True)
class VersionPlace:
    """The version of an order in a body that is the order itself.

    Attributes:
        order_id: The place of its ID. Another resource with a time has another ID there.
        time: The place of the time of its last change, in UTC if it has no zone.
    """

    order_id: PathPlace
    time: PathPlace

    def read(self, headers: MultiMapping[str], body: bytes, order_id: str) -> datetime | None:
        """The version of this order, or None if the body does not contain it."""
        if self.order_id.read(headers, body) != order_id:
            return None
        try:
            version = datetime.fromisoformat(self.time.read(headers, body) or "")
        except ValueError:
            return None
        return version.replace(tzinfo=version.tzinfo or UTC)

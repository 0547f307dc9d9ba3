"""Masks personal data for visitors who may only read."""

from ingest.api.console.frame import Visit
from ingest.domain.api_key import Scope

_SHOWN = 2


def shown_personal(visit: Visit, text: str | None) -> str | None:
    """Return a text about a customer, or only its beginning for a visitor who may not change anything."""
    if text is None or visit.may(Scope.OPERATE):
        return text
    return text[:_SHOWN] + "…"

"""The conditions under which a request to the external API may be sent, and the observer of notices in its response."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import msgspec

from ingest.upstream.notices import OnNotice, ignored_notice

if TYPE_CHECKING:
    from ingest.upstream.quota.quota import FleetQuota

Admit = Callable[[], Awaitable[None]]
"""Lets a request begin. Raises `NotSent` while the source is paused."""


class Conditions(msgspec.Struct, frozen=True):
    """The conditions under which a request may be sent.

    Attributes:
        quota: each request waits for it. None for no limit.
        admit: called before each request. None if the source cannot be paused.
        on_notice: called with the notices in its response.
    """

    quota: "FleetQuota | None" = None
    admit: Admit | None = None
    on_notice: OnNotice = ignored_notice


UNCONDITIONAL = Conditions()

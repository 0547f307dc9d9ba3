"""The facts that an inspection of one server finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, kw_only=True)
class RedisFacts:
    """The properties of a server, and our rights there.

    Attributes:
        info: the reply to INFO, or empty if the user may not send it.
        round_trip: seconds, the shortest of a few.
        clock_ahead: seconds by which its clock is ahead of this machine's, or None if the user may not read it.
        refused: commands that the user may not send.
        unknown: commands that the server does not have.
        closed_keys: keys that the user may not read and write.
        other_types: keys that hold something else than ours do.
        no_writes: why the server takes no writes, in its words.
        has_xnack: whether XNACK can be used, or None if it could not be tried.
        newest: by queue, the order announced last that is still queued.
        cluster: the reply to CLUSTER INFO. Empty for other servers, or if the user may not send it.
    """

    info: Mapping[str, Any] = field(default_factory=dict)
    round_trip: float = 0.0
    clock_ahead: float | None = None
    refused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    closed_keys: list[str] = field(default_factory=list)
    other_types: list[str] = field(default_factory=list)
    no_writes: str = ""
    has_xnack: bool | None = None
    newest: dict[str, str | None] = field(default_factory=dict)
    cluster: Mapping[str, str] = field(default_factory=dict)

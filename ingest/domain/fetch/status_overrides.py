"""Parses rules for unusual meanings of statuses, such as `404=retry:1h, 451=not_found`."""

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from ingest.domain.durations import NUMBER, UNITS

LONGEST = 30 * 86_400.0
_RULE = re.compile(rf"(?P<status>[45][0-9]{{2}})\s*=\s*(?P<action>[a-z_]+)(?::(?P<number>{NUMBER})(?P<unit>[smhd]?))?")
_FORM = "write STATUS=ACTION, such as 404=retry:1h, 409=retry, 451=not_found"


class StatusAction(StrEnum):
    """The action for an order whose request gets a status.

    `RETRY` without a time acts like a 5xx. With a time, it retries after that time and uses up an attempt.
    """

    RETRY = "retry"
    NOT_FOUND = "not_found"
    REJECTED = "rejected"
    THROTTLED = "throttled"
    CREDENTIAL = "credential"


class StatusOverride(msgspec.Struct, frozen=True):
    """The meaning of one status.

    Attributes:
        action: the action to take.
        after: seconds until the next request, if the rule contains a time.
    """

    action: StatusAction
    after: float | None = None


def parse_status_overrides(text: str) -> Mapping[int, StatusOverride]:
    """Read rules `STATUS=ACTION` or `STATUS=ACTION:TIME`, separated by commas or line ends.

    A time is a number of seconds, or a number with a unit: `90`, `90s`, `15m`, `1h`, `2d`.

    Raises:
        ValueError: a rule is invalid.
    """
    overrides: dict[int, StatusOverride] = {}
    for rule in re.split(r"[,\n]", text):
        if not rule.strip():
            continue
        status, override = _parse(rule.strip())
        if status in overrides:
            raise ValueError(f"{status} has two rules")
        overrides[status] = override
    return overrides


def _parse(rule: str) -> tuple[int, StatusOverride]:
    parts = _RULE.fullmatch(rule)
    if parts is None:
        raise ValueError(f"{rule!r} is not a rule for a status from 400 to 599: {_FORM}")
    try:
        action = StatusAction(parts["action"])
    except ValueError:
        raise ValueError(f"{parts['action']!r} is not one of {', '.join(StatusAction)}: {_FORM}") from None
    if parts["number"] is None:
        return int(parts["status"]), StatusOverride(action)
    if action not in {StatusAction.RETRY, StatusAction.THROTTLED}:
        raise ValueError(f"{rule!r}: only retry and throttled support a time")
    after = float(parts["number"]) * UNITS[parts["unit"]]
    if not 0 < after <= LONGEST:
        raise ValueError(f"{rule!r}: the time must be more than 0 and at most 30 days")
    return int(parts["status"]), StatusOverride(action, after)

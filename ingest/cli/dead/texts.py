"""Dead letters as text: what comes from outside is shown, never obeyed."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ingest.domain.dead_letter import DeadLetterEntry

_FORMULA = ("=", "+", "-", "@")

COLUMNS = ("id", "order_id", "reason", "error", "attempts", "dead_at", "first_enqueued_at", "worker", "replays", "replayed_at", "fields")  # fmt: skip


def as_object(letter: DeadLetterEntry) -> dict[str, Any]:
    """What JSON and CSV say of a dead letter: by column, with the entry's other fields together."""
    return {
        "id": letter.entry_id,
        "order_id": letter.order_id,
        "reason": letter.reason,
        "error": letter.error,
        "attempts": letter.attempts,
        "dead_at": _moment(letter.dead_at),
        "first_enqueued_at": _moment(letter.first_enqueued_at),
        "worker": letter.worker,
        "replays": letter.replays,
        "replayed_at": _moment(letter.replayed_at),
        "fields": texts(letter.fields),
    }


def as_json(letter: DeadLetterEntry) -> str:
    """One JSON object on one line, in ASCII: safe in any terminal and encoding."""
    return json.dumps(as_object(letter))


def as_row(letter: DeadLetterEntry) -> list[str]:
    """Its cells in a CSV file, in the order of `COLUMNS`."""
    facts = {**as_object(letter), "fields": json.dumps(texts(letter.fields))}
    return [_cell("" if facts[column] is None else str(facts[column])) for column in COLUMNS]


def texts(fields: Mapping[bytes, bytes]) -> dict[str, str]:
    """An entry's fields; bytes that are not UTF-8 become backslash escapes."""
    return {_text(name): _text(value) for name, value in fields.items()}


def printable(text: str, most: int | None = None) -> str:
    r"""The text on one line, shortened to `most` characters; what is not printable becomes backslash escapes.

    That is control characters, so that nobody steers a terminal, and those that hide or reorder what stands there.
    """
    cut = text if most is None or len(text) <= most else text[: most - 1] + "…"
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in cut)


def counted(number: int) -> str:
    """So many dead letters."""
    return f"{number:,} dead letter{'' if number == 1 else 's'}"


def listed(reasons: Mapping[str, int]) -> str:
    """How many for each reason, the most frequent first."""
    by_count = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {printable(reason, 64) or 'without a reason'}" for reason, count in by_count)


def _cell(text: str) -> str:
    # Spreadsheets run what looks like a formula.
    return printable(f"'{text}" if text.startswith(_FORMULA) else text)


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(raw: bytes) -> str:
    return raw.decode(errors="backslashreplace")

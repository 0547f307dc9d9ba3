"""Text from outside, made safe to print: a terminal must not take it for commands."""

import json

from ingest.domain.printable import printable

__all__ = ["counted", "printable", "printable_json"]


def printable_json(document: str) -> str:
    r"""The same JSON, which is on one line, with escapes such as `\u009b` for characters that are not printable.

    JSON itself requires them only of control characters below U+0020, but others control a terminal (U+009B) or reorder its text
    (U+202E).
    """
    if document.isprintable():
        return document
    return "".join(character if character.isprintable() else _json_escape(character) for character in document)


def _json_escape(character: str) -> str:
    # `dumps` leaves U+007F as it is.
    return "\\u007f" if character == "\x7f" else json.dumps(character)[1:-1]


def counted(count: int, noun: str) -> str:
    """The count with its noun: `1 order`, `2,000 orders`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

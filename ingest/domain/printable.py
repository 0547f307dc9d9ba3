"""Makes text from outside safe to print, because a terminal or a spreadsheet must not take it for commands."""

import re

# Where a spreadsheet would begin a cell, which is after `;` in most of Europe, even within quotes. A tab is not printable.
_FORMULA = re.compile(r"(^|;)(?=[\s\"]*[=+\-@\uff1d\uff0b\uff0d\uff20])")
_is_number = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?").fullmatch


def printable(text: str, limit: int | None = None) -> str:
    r"""The text on one line, shortened to `limit` characters. Characters that are not printable become backslash escapes.

    These are control characters, which could control the terminal, and characters that hide or reorder text.
    """
    cut = text if limit is None or len(text) <= limit else text[: limit - 1] + "…"
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in cut
    )


def cell(value: object) -> str:
    """The text of a cell in a CSV file, empty for None. Spreadsheets run a cell that looks like a formula, unless it is a number."""
    text = "" if value is None else printable(str(value))
    return text if _is_number(text) else _FORMULA.sub(r"\1'", text)

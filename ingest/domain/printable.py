"""Makes text from outside safe to print, because a terminal or a spreadsheet must not take it for commands."""

_FORMULA = ("=", "+", "-", "@")


def printable(text: str, limit: int | None = None) -> str:
    r"""The text on one line, shortened to `limit` characters. Characters that are not printable become backslash escapes.

    These are control characters, which could control the terminal, and characters that hide or reorder text.
    """
    cut = text if limit is None or len(text) <= limit else text[: limit - 1] + "…"
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in cut
    )


def cell(text: str) -> str:
    """The text of a cell in a CSV file. Spreadsheets run a cell that looks like a formula."""
    return printable(f"'{text}" if text.startswith(_FORMULA) else text)

"""Text from outside, made safe to print: a terminal must not take it for commands."""


def printable(text: str, limit: int | None = None) -> str:
    r"""The text on one line, shortened to `limit` characters; characters that are not printable become backslash escapes.

    These are control characters, which could control the terminal, and characters that hide or reorder text.
    """
    cut = text if limit is None or len(text) <= limit else text[: limit - 1] + "…"
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode() for character in cut
    )


def counted(count: int, noun: str) -> str:
    """The count with its noun: `1 order`, `2,000 orders`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

"""Describes fields as options of a command, so that a type declares its options once."""

from typing import Any, get_args

import msgspec


def described(panel: str | None, text: str, **settings: Any) -> msgspec.Meta:
    """The help text of a field.

    Args:
        panel: title of the group of options, or None for the first group.
        text: the help text.
        settings: `ge` and `le` limit the value, and others are settings of `typer.Option`.
    """
    limits = {name: settings.pop(name) for name in ("ge", "le") if name in settings}
    return msgspec.Meta(**limits, description=text, extra={"panel": panel, **settings})


def choices(annotation: Any) -> list[str]:
    """The values of a `Literal`, even if it may be None."""
    parts = get_args(annotation)
    return [text for part in parts for text in ([part] if isinstance(part, str) else choices(part))]

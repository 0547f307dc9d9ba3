"""The sources, connections and messages that the commands to control workers share."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from ingest.cli.invocation import backends_of_sources
from ingest.domain.durations import parse_duration
from ingest.domain.errors import ConfigError
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.backends import Backends
    from ingest.operations.control.control_access import ControlAccess

_T = TypeVar("_T")

AllSources = Annotated[bool, typer.Option("--all", help="All sources.")]
Reason = Annotated[str, typer.Option(help="Shown to other operators.", metavar="TEXT")]


def chosen_to_control(
    names: Sequence[str] | None, *, everything: bool
) -> "tuple[Mapping[str, Backends], Sequence[str]]":
    """Return the sources with their names, and the names of the chosen ones: the only one, the named ones, or all.

    Raises:
        ConfigError: a name is needed, no source has one of the names, or there are names and `everything`.
    """
    from ingest.domain.source_name import chosen_source

    if names and everything:
        raise ConfigError("--all selects every source: use it without --source")
    sources = backends_of_sources(names)
    return sources, [*sources] if everything or names else [chosen_source(None, sources)]


def run_with_access(sources: "Mapping[str, Backends]", act: "Callable[[ControlAccess], Awaitable[_T]]") -> _T:
    """Open the controls of the deployment with these sources, and act on them."""

    async def run() -> _T:
        from ingest.operations.control.control_access import ControlAccess

        async with ControlAccess.open([*sources.values()]) as access:
            return await act(access)

    return run_interruptible(run())


def duration_of(text: str | None) -> float | None:
    """Return the seconds of `--for`.

    Raises:
        typer.BadParameter: it is not a duration.
    """
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--for'") from None


def named(source: str) -> str:
    """Return the words that name a source: the only one may have no name."""
    return source or "the source"


def until(moment: datetime | None) -> str:
    """Return when a control ends."""
    return "until it is resumed" if moment is None else f"until {moment:%Y-%m-%d %H:%M:%S} UTC"

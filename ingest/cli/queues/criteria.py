"""The options that select dead letters or retries, which all commands about them share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from ingest.cli.options import (
    TIME,
    AsJson,
    Changing,
    DryRun,
    Sources,
    SourcesToChange,
    Yes,
    parse_period,
    with_parameters,
)
from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import ConfigError

_PANEL = "Selection: entries that match all of these"
_IDS = {
    EntryKind.DEAD_LETTERS: "ID of a dead letter, or of an order, for all its dead letters.",
    EntryKind.RETRIES: "Order ID.",
}
# What the criteria `--reason`, and `--since` and `--until`, are about.
_EVENTS = {
    EntryKind.DEAD_LETTERS: ("Dead-lettered", "Dead-lettered"),
    EntryKind.RETRIES: ("Retried", "First enqueued"),
}
_NAMES = {
    EntryKind.DEAD_LETTERS: "IDs, --reason, --since or another criterion",
    EntryKind.RETRIES: "order IDs, --reason or another criterion",
}

Rate = Annotated[
    float | None, typer.Option("--rate", help="At most N changes per second.", metavar="N", min=0.001, max=1_000_000)
]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The entries that a command line selects.

    Attributes:
        sources: the names of their sources.
    """

    selection: Selection
    sources: Sequence[str] | None


def selecting(kind: EntryKind, sources: Any = Sources) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command whose first parameter is `Chosen`, which it gets from the options that select entries of a kind.

    Without criteria, it selects everything.
    """
    options = _options(kind, sources)

    def decorate(run: Callable[..., None]) -> Callable[..., None]:
        @wraps(run)
        def command(**given: Any) -> None:
            chosen = {name: given.pop(name) for name in options}
            run(Chosen(_selection(**chosen), chosen["source"]), **given)

        own = [*signature(run).parameters.values()][1:]
        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=each) for name, each in options.items()
        ]
        return with_parameters(command, [*parameters, *own])

    return decorate


def changing(kind: EntryKind) -> Callable[[Callable[[Changing], None]], Callable[..., None]]:
    """Decorate a command that changes entries of a kind: criteria or `--all` are required."""

    def decorate(run: Callable[[Changing], None]) -> Callable[..., None]:
        def command(
            chosen: Chosen,
            *,
            everything: Annotated[
                bool, typer.Option("--all", help=f"All {kind.nouns}.", rich_help_panel=_PANEL)
            ] = False,
            rate: Rate = None,
            dry_run: DryRun = False,
            yes: Yes = False,
            as_json: AsJson = False,
        ) -> None:
            if chosen.selection.everything and not everything:
                raise ConfigError(f"choose {kind.nouns} by {_NAMES[kind]}, or all of them with --all")
            if everything and not chosen.selection.everything:
                raise ConfigError(f"--all selects every {kind.noun}: use it without IDs and other criteria")
            run(Changing(chosen.selection, chosen.sources, dry_run, yes, as_json, rate))

        command.__doc__ = run.__doc__
        return selecting(kind, SourcesToChange)(command)

    return decorate


def _options(kind: EntryKind, sources: Any) -> Mapping[str, Any]:
    """The types of the options by the names of their parameters."""

    def option(values: Any, name: str, metavar: str, text: str) -> Any:
        return Annotated[values, typer.Option(name, help=text, metavar=metavar, rich_help_panel=_PANEL)]

    reasons: Any = kind.reasons
    failed, dated = _EVENTS[kind]
    return {
        "ids": Annotated[list[str] | None, typer.Argument(help=_IDS[kind], metavar="ID", hidden=True)],
        "source": sources,
        "reason": option(
            list[reasons] | None,
            "--reason",
            "REASON",
            f"{failed} for this reason. Repeatable. One of {', '.join(reasons)}.",
        ),
        "since": option(str | None, "--since", "TIME", f"{dated} at this time or later. {TIME}"),
        "until": option(str | None, "--until", "TIME", f"{dated} before this time. {TIME}"),
        "text": option(str | None, "--text", "TEXT", "With this text in the error or the order ID."),
        "shape": option(
            str | None,
            "--shape",
            "ERROR",
            "With this error shape, as the command `groups` prints it, or with the shape of this error.",
        ),
        "attribute": option(
            list[str] | None,
            "--attribute",
            "NAME=VALUE",
            "With this field of the entry, such as origin=api. Repeatable.",
        ),
    }


def _selection(
    *,
    ids: Sequence[str] | None,
    reason: Sequence[str] | None,
    since: str | None,
    until: str | None,
    text: str | None,
    shape: str | None,
    attribute: Sequence[str] | None,
    source: object,
) -> Selection:
    """The selection of these options: everything, unless there are criteria.

    Raises:
        ConfigError: if a criterion is invalid, or the criteria contradict each other.
    """
    del source
    pairs = [each.partition("=") for each in attribute or ()]
    if not all(name and equals for name, equals, _ in pairs):
        raise ConfigError("--attribute: write it as NAME=VALUE, such as origin=api")
    criteria = EntryFilter(text or "", shape or "", {name: value for name, _, value in pairs})
    first, last = parse_period(since, until)
    everything = not (ids or reason or first or last or criteria)
    return Selection(frozenset(ids or ()), frozenset(map(str, reason or ())), first, last, everything, criteria)

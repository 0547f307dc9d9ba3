"""`ingest api-key create`: creates a key and shows it once."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ingest.cli.api_key.options import File
from ingest.domain.api_key import FASTEST, LARGEST_BURST, SLOWEST, RateLimit, Scope


def create(
    name: Annotated[
        str,
        typer.Argument(
            help="Who will use it: letters and digits, after the first also `.`, `_` and `-`.",
            metavar="NAME",
            hidden=True,
        ),
    ],
    *,
    scope: Annotated[
        list[Scope] | None,
        typer.Option(
            "--scope",
            help=f"A permitted scope. Required, may be repeated. One of {', '.join(Scope)}.",
            metavar="SCOPE",
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Requests per second at most.", min=SLOWEST, max=FASTEST, metavar="N")
    ] = None,
    burst: Annotated[
        int | None,
        typer.Option(
            help="Requests in a burst after an idle time. Defaults to the requests of one second.",
            min=1,
            max=LARGEST_BURST,
            metavar="N",
        ),
    ] = None,
    file: File = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Create a key and print it. It is shown only here, because the file of the keys contains its SHA-256.

    The name identifies its user: letters and digits, after the first also `.`, `_` and `-`.

    Examples:
    `ingest api-key create shop --scope enqueue` creates a key that announces orders, and does nothing else.

    `ingest api-key create support --scope read --scope operate --rate 10 --burst 50` limits how often it is used.

    `ingest api-key create shop --scope enqueue >shop.key` keeps it out of the terminal.
    """
    from ingest.cli.api_key.options import keys_file, limit_of, scopes_of
    from ingest.cli.common import say
    from ingest.domain.api_key import is_key_name
    from ingest.operations import api_keys

    if not is_key_name(name):
        raise typer.BadParameter(
            "must be up to 64 letters and digits, after the first also `.`, `_` and `-`, and not `anonymous` or `nobody`",
            param_hint="'NAME'",
        )
    if not scope:
        raise typer.BadParameter(
            f"give the scopes of the key, one or more of {', '.join(Scope)}", param_hint="'--scope'"
        )
    limit = _limit(rate, burst)
    path = keys_file(file)
    text, key = api_keys.create(path, name, scope, limit)
    _show(json.dumps({"key": text, **api_keys.as_object(key)}) if as_json else text, path, key.key_id)
    say(f"created the key {name} (ID {key.key_id}; {scopes_of(key)}; {limit_of(key)}), shown only here")


def _limit(rate: float | None, burst: int | None) -> RateLimit | None:
    from ingest.operations.api_keys import limit_of

    try:
        return limit_of(rate, burst)
    except ValueError:
        raise typer.BadParameter("needs --rate", param_hint="'--burst'") from None


def _show(text: str, path: Path, key_id: str) -> None:
    """Print the key. A key that could not be shown is revoked."""
    from ingest.domain.errors import UserError
    from ingest.operations import api_keys
    from ingest.process.standard_streams import CannotWrite, discard_output

    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except (BrokenPipeError, CannotWrite) as error:
        discard_output()
        api_keys.revoke(path, [key_id])
        raise UserError("the key could not be printed, and has been revoked again") from error

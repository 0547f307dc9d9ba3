"""`ingest api-key`: creates, lists and revokes the keys of the HTTP API."""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ingest.cli.invocation import say, start
from ingest.cli.listing import Listing
from ingest.cli.options import AsJson
from ingest.cli.terminal.text import printable
from ingest.domain.api_key import FASTEST, LARGEST_BURST, SLOWEST, ApiKey, Scope, is_key_name
from ingest.domain.errors import ConfigError, UserError
from ingest.process.standard_streams import CannotWrite, discard_output

COMMANDS = ("create", "list", "revoke")

File = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The file of the keys, instead of INGEST_API_KEYS_FILE.")
]


def api_key() -> None:
    """Create, list and revoke the keys of the HTTP API.

    Examples:
    `ingest api-key create shop --scope enqueue --rate 100` creates a key, and prints it: the only time that it is
    shown.

    `ingest api-key list` lists the keys, with their names, IDs and scopes.

    `ingest api-key revoke shop` makes a key useless, within seconds and without a restart.

    The keys are in the file that INGEST_API_KEYS_FILE names.
    """


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
            "--scope", help=f"A permitted scope. Required, may be repeated. One of {', '.join(Scope)}.", metavar="SCOPE"
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
    source: Annotated[
        list[str] | None,
        typer.Option("--source", help="Limit the key to this source. Repeatable.", metavar="NAME"),
    ] = None,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it.

    It is shown only here, because the file of the keys contains its SHA-256.

    The name identifies its user: letters and digits, after the first also `.`, `_` and `-`.

    Examples:
    `ingest api-key create shop --scope enqueue` creates a key that can only enqueue orders.

    `ingest api-key create support --scope read --scope operate --rate 10 --burst 50` limits how often it is used.

    `ingest api-key create shop-de --scope enqueue --source shop-de` creates a key for one of several sources.

    `ingest api-key create shop --scope enqueue >shop.key` keeps it out of the terminal.
    """
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
    if burst is not None and rate is None:
        raise typer.BadParameter("needs --rate", param_hint="'--burst'")
    path, sources = _keys_file(file), _checked_sources(source)
    text, key = api_keys.create(path, name, scope, api_keys.limit_of(rate, burst), sources)
    _show(json.dumps({"key": text, **api_keys.as_object(key)}) if as_json else text, path, key.key_id)
    _, key_id, scopes, limits, _, only = _facts(key)
    say(f"created the key {name} (ID {key_id}; {scopes}; {limits}{'; ' if only else ''}{only}), shown only here")


def list_(
    *,
    file: File = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """List the keys with their scopes and sources.

    It shows name, ID, scopes, rate limit, date and sources. The keys themselves are not stored.

    Examples:
    `ingest api-key list` lists all keys.

    `ingest api-key list --json | jq -r .name` prints their names. With `--json`, each line is a JSON object.

    A key that you have found somewhere is the one whose ID `printf %s "$KEY" | sha256sum | cut -c -12` prints.
    """
    from ingest.operations import api_keys

    keys = api_keys.read_keys(_keys_file(file))
    columns = ("name", "id", "scopes", "rate limit", "created", "sources")
    # Without a limited key, there is no column of sources.
    shown = columns if any(key.sources is not None for key in keys) else columns[:-1]
    listing: Listing[ApiKey] = Listing(
        {title: partial(_fact, place) for place, title in enumerate(shown)},
        names=2,
        facts=len(shown),
        nothing="no API keys",
        as_json=lambda key: json.dumps(api_keys.as_object(key)),
    )
    listing.show(keys, as_json=as_json)


def revoke(
    names: Annotated[list[str], typer.Argument(help="Name or ID of a key.", metavar="NAME", hidden=True)],
    *,
    file: File = None,
) -> None:
    """Revoke keys.

    Running servers reject them within seconds. A new key may use the same name.

    A key is named by its name or its ID.

    The exit code is 1 if there is no such key. All others are revoked.

    Examples:
    `ingest api-key revoke shop` revokes a key by its name.

    `ingest api-key revoke 3a7bd3e2360a` revokes a key by its ID.

    To replace a key without an interruption, create another one, let its users change to it, and revoke the old one.
    """
    from ingest.operations import api_keys

    removed, missing = api_keys.revoke(_keys_file(file), names)
    for key in removed:
        say(f"revoked the key {key.name} (ID {key.key_id})")
    for name in missing:
        say(f"there is no key {printable(name, 64)}")
    raise typer.Exit(1 if missing else 0)


def _keys_file(given: Path | None) -> Path:
    path = start(api_keys_file=None if given is None else str(given)).api_keys_file
    if path is None:
        raise ConfigError("there is no file of keys: set INGEST_API_KEYS_FILE, or give --file")
    return Path(path)


def _checked_sources(names: list[str] | None) -> list[str] | None:
    """Return the sources of a key. Without a sources file, the file of the keys may be for other hosts.

    Raises:
        ConfigError: there is no such source, or the name cannot be one.
    """
    if not names:
        return None
    from ingest.domain.source_name import chosen_sources, parse_source_name
    from ingest.settings import load_settings
    from ingest.settings.source_file import source_names

    settings = load_settings()
    if settings.sources is None:
        return [parse_source_name(name) for name in names]
    return chosen_sources(names, source_names(settings))


def _show(text: str, path: Path, key_id: str) -> None:
    """Print the key. A key that could not be shown is revoked."""
    from ingest.operations import api_keys

    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except (BrokenPipeError, CannotWrite) as error:
        discard_output()
        api_keys.revoke(path, [key_id])
        raise UserError("the key could not be printed, and has been revoked again") from error


def _fact(place: int, key: ApiKey) -> str:
    return _facts(key)[place]


def _facts(key: ApiKey) -> tuple[str, str, str, str, str, str]:
    """The name, ID, scopes, rate limit, date and sources of a key on one line."""
    limit = f"{key.limit.rate:g}/s, burst {key.limit.burst:,}" if key.limit else "no limit"
    scopes = " ".join(scope.value for scope in Scope if scope in key.scopes)
    created = f"{key.created:%Y-%m-%d}" if key.created else ""
    return key.name, key.key_id, scopes, limit, created, "" if key.sources is None else " ".join(sorted(key.sources))

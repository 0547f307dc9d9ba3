"""`ingest api-key list`: lists the keys, without their text."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.api_key.options import File

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.domain.api_key import ApiKey


def list_(
    *,
    file: File = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """List the keys: name, ID, scopes, rate limit and date. The keys themselves are kept nowhere.

    Examples:
    `ingest api-key list` lists all keys.

    `ingest api-key list --json | jq -r .name` is for scripts: one JSON object per line.

    A key that you have found somewhere is the one whose ID `printf %s "$KEY" | sha256sum | cut -c -12` prints.
    """
    from ingest.cli.api_key.options import keys_file
    from ingest.cli.common import say
    from ingest.cli.terminal.output import standard_output
    from ingest.operations import api_keys

    keys = api_keys.read_keys(keys_file(file))
    lines = [json.dumps(api_keys.as_object(key)) for key in keys] if as_json else _table(keys)
    with standard_output() as stream:
        stream.writelines(line + "\n" for line in lines)
    if not keys and not as_json:
        say("no API keys")


def _table(keys: "Sequence[ApiKey]") -> list[str]:
    from ingest.cli.api_key.options import limit_of, scopes_of
    from ingest.cli.terminal.width import aligned

    if not keys:
        return []
    rows = [
        (key.name, key.key_id, scopes_of(key), limit_of(key), f"{key.created:%Y-%m-%d}" if key.created else "")
        for key in keys
    ]
    return aligned([("name", "id", "scopes", "rate limit", "created"), *rows], "  ")

"""`ingest api-key revoke`: removes keys."""

from typing import Annotated

import typer

from ingest.cli.api_key.options import File


def revoke(
    names: Annotated[list[str], typer.Argument(help="Name or ID of a key.", metavar="NAME", hidden=True)],
    *,
    file: File = None,
) -> None:
    """Revoke keys. Running servers reject them within seconds. A new key may use the same name.

    A key is named by its name or its ID.

    The exit code is 1 if there is no such key. All others are revoked.

    Examples:
    `ingest api-key revoke shop` revokes a key by its name, `ingest api-key revoke 3a7bd3e2360a` by its ID.

    To replace a key without an interruption, create another one, let its users change to it, and revoke the old one.
    """
    from ingest.cli.api_key.options import keys_file
    from ingest.cli.common import say
    from ingest.cli.terminal.text import printable
    from ingest.operations import api_keys

    removed, missing = api_keys.revoke(keys_file(file), names)
    for key in removed:
        say(f"revoked the key {key.name} (ID {key.key_id})")
    for name in missing:
        say(f"there is no key {printable(name, 64)}")
    raise typer.Exit(1 if missing else 0)

"""Loads the file of webhooks. Each error names line and field."""

import re
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ingest.api.webhooks import declaration
from ingest.api.webhooks.declaration import WebhookError, below
from ingest.api.webhooks.secret_files import SecretFiles
from ingest.api.webhooks.webhook import OpenSecrets, Webhook, compile_webhook
from ingest.domain.durations import parse_duration
from ingest.domain.errors import ConfigError
from ingest.domain.toml_errors import Keys, describe_error, describe_location
from ingest.files.regular import read_text

_LARGEST = 1024 * 1024
_DURATIONS = ("tolerance", "coalesce")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)


def load_webhooks(path: str, open_secrets: OpenSecrets = SecretFiles) -> list[Webhook]:
    """The webhooks in a file, with their secrets.

    Raises:
        ConfigError: A webhook cannot be used. The message names the setting, the line and the field.
    """
    try:
        text = read_text(Path(path), _LARGEST, "a file of webhooks")
    except ValueError as error:
        raise ConfigError(f"INGEST_WEBHOOKS: {error}") from error
    try:
        return compile_webhooks(text, Path(path).parent, open_secrets)
    except WebhookError as error:
        where = ", ".join([path, *describe_location(error.keys, text)])
        raise ConfigError(f"INGEST_WEBHOOKS: {where}: {error.problem}") from None


def compile_webhooks(text: str, folder: Path, open_secrets: OpenSecrets = SecretFiles) -> list[Webhook]:
    """Compile the text of a file. Paths of secrets are relative to its folder.

    Raises:
        WebhookError: It cannot be used.
    """
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for thousands of digits
        raise WebhookError(f"not TOML: {error}") from None
    tables = data.get("sources")
    _convert(data if not isinstance(tables, dict) else {**data, "sources": {}}, declaration.WebhooksFile)
    if not tables:
        raise WebhookError("contains no webhook: write a table [sources.NAME] for each")
    return [_compile(name, table, folder, open_secrets) for name, table in tables.items()]


def compile_table(name: str, table: Any, folder: Path, open_secrets: OpenSecrets = SecretFiles) -> Webhook:
    """Compile the table of a single webhook.

    Raises:
        WebhookError: It cannot be used. Its keys begin at the table.
    """
    return compile_webhook(name, _convert(_in_seconds(table), declaration.WebhookDeclaration), folder, open_secrets)


def _in_seconds(table: Any) -> Any:
    """Replace durations with a unit, such as "5m"."""
    if not isinstance(table, dict):
        return table
    seconds: dict[str, float] = {}
    for key in _DURATIONS:
        if isinstance(value := table.get(key), str):
            try:
                seconds[key] = parse_duration(value)
            except ValueError as error:
                raise WebhookError(str(error), (key,)) from None
    return {**table, **seconds}


def _compile(name: str, table: Any, folder: Path, open_secrets: OpenSecrets) -> Webhook:
    keys: Keys = ("sources", name)
    if not _NAME.fullmatch(name):
        raise WebhookError("a name is 1 to 64 of a-z 0-9 _ -, because it is a part of the URL", keys)
    with below(*keys):
        return compile_table(name, table, folder, open_secrets)


def _convert(value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise WebhookError(*describe_error(str(error), (), partial(_known_keys, kind))) from None


def _known_keys(kind: type[msgspec.Struct], keys: Keys) -> Sequence[str]:
    """The keys of the table at a place in a table of this kind."""
    match keys:
        case ():
            struct = kind
        case ("signature",):
            struct = declaration.Signature
        case ("challenge",):
            struct = declaration.Challenge
        case _:
            struct = declaration.InHeader
    return struct.__struct_encode_fields__

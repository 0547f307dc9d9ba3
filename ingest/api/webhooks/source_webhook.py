"""Compiles the webhook of a named source, which is a table of the sources file."""

from pathlib import Path
from typing import TYPE_CHECKING

from ingest.api.webhooks.declaration import WebhookError
from ingest.api.webhooks.load import compile_table
from ingest.api.webhooks.secret_files import SecretFiles
from ingest.settings.source_file import problem_in_source

if TYPE_CHECKING:
    from ingest.api.webhooks.webhook import OpenSecrets, Webhook
    from ingest.settings import Settings


def webhook_of(settings: "Settings", open_secrets: "OpenSecrets" = SecretFiles) -> "Webhook | None":
    """Return the webhook of a source, if the source declares one. It is named after the source.

    Raises:
        ConfigError: The table or a file of secrets cannot be used. The message contains the file, the line and the key.
    """
    if settings.webhook is None:
        return None
    try:
        return compile_table(settings.source, settings.webhook, Path(settings.sources or "").parent, open_secrets)
    except WebhookError as error:
        raise problem_in_source(settings, error.problem, ("webhook", *error.keys)) from None

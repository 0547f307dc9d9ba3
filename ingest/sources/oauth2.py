"""Makes the OAuth 2.0 options of a source from the settings."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ingest.domain.errors import ConfigError
from ingest.domain.fetch.token_store import TokenStore
from ingest.settings.names import file_setting, setting_name
from ingest.upstream.access.endpoint import OAuth2
from ingest.upstream.access.sealing import check_keys
from ingest.upstream.access.token_file import TokenFile
from ingest.upstream.http.proxy import proxy_for

if TYPE_CHECKING:
    from ingest.settings import Settings

IN_POSTGRESQL = "postgresql"
"""The value of `upstream_oauth2_refresh_store` for the database of the orders."""


def check_grant(settings: "Settings") -> None:
    """Check that the settings fit the grant. With a refresh token, a client without a secret is a public client.

    Raises:
        ConfigError: a setting is missing, has no effect or is invalid.
    """
    name = partial(setting_name, settings.source)
    grant, store = settings.upstream_oauth2_grant, settings.upstream_oauth2_refresh_store
    if grant == "client_credentials":
        for field in ("upstream_oauth2_refresh_token", "upstream_oauth2_refresh_store"):
            if getattr(settings, field) is not None:
                wanted = f"{name('upstream_oauth2_grant')}=refresh_token"
                raise ConfigError(f"{name(field)} has no effect: set {wanted}, or remove it")
    needed = "upstream_oauth2_refresh_token" if grant == "refresh_token" else "upstream_oauth2_client_secret"
    if getattr(settings, needed) is None:
        raise ConfigError(f"{name(needed)} is missing: {name('upstream_oauth2_grant')}={grant} needs it")
    key = settings.upstream_oauth2_store_key
    if store == IN_POSTGRESQL and key is None:
        raise ConfigError(
            f"{file_setting(settings.source, 'upstream_oauth2_store_key')} is missing:"
            f" {name('upstream_oauth2_refresh_store')}={store} needs a key for encryption"
        )
    if key is None:
        return
    if store is None:
        wanted = name("upstream_oauth2_refresh_store")
        raise ConfigError(f"{name('upstream_oauth2_store_key')} has no effect: set {wanted}, or remove it")
    try:
        check_keys(key.get_secret_value())
    except ValueError as error:
        raise ConfigError(f"{name('upstream_oauth2_store_key')}: {error}") from None


def oauth2_of(settings: "Settings", environ: Mapping[str, str]) -> OAuth2 | None:
    """Return the options, with the proxy that the environment names."""
    if settings.upstream_oauth2_url is None:
        return None
    return OAuth2(
        settings.upstream_oauth2_url,
        settings.upstream_oauth2_scope,
        settings.upstream_oauth2_client_auth,
        settings.upstream_oauth2_grant,
        proxy_for(settings.upstream_oauth2_url, environ),
        _store_of(settings),
    )


def _store_of(settings: "Settings") -> TokenStore | None:
    match settings.upstream_oauth2_refresh_store:
        case None:
            return None
        case "postgresql":
            from ingest.store.credentials import CredentialRow  # noqa: PLC0415  only some need it

            return CredentialRow(settings.postgres_dsn.get_secret_value(), settings.source)
        case path:
            return TokenFile(Path(path))

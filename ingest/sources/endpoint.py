"""Makes the endpoint of a source from the settings."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ingest.domain.errors import ConfigError
from ingest.domain.fetch.request_headers import check_secret, check_token, parse_headers
from ingest.domain.fetch.response_rules import ResponseRule
from ingest.domain.fetch.status_overrides import parse_status_overrides
from ingest.domain.masking import BULK_PLACEHOLDER, PLACEHOLDER
from ingest.settings.names import file_setting, setting_name
from ingest.sources.oauth2 import check_grant, oauth2_of
from ingest.upstream.access.endpoint import Access, AuthKind, Endpoint, Secret
from ingest.upstream.access.sealing import check_keys
from ingest.upstream.http.proxy import proxy_for
from ingest.upstream.http.tls_context import TlsFiles

if TYPE_CHECKING:
    from ingest.settings import Settings

# The settings of each kind of credential. They have no effect with another one.
_USED_BY: Mapping[str, tuple[AuthKind, ...]] = {
    "upstream_token": ("bearer", "header"),
    "upstream_auth_header": ("header", "oauth2"),
    "upstream_user": ("basic",),
    "upstream_password": ("basic",),
    "upstream_oauth2_url": ("oauth2",),
    "upstream_oauth2_client_id": ("oauth2",),
    "upstream_oauth2_client_secret": ("oauth2",),
    "upstream_oauth2_scope": ("oauth2",),
    "upstream_oauth2_parameters": ("oauth2",),
    "upstream_oauth2_refresh_token": ("oauth2",),
    "upstream_oauth2_refresh_store": ("oauth2",),
    "upstream_oauth2_store_key": ("oauth2",),
}
_OPTIONAL = {
    "upstream_auth_header",
    "upstream_oauth2_scope",
    "upstream_oauth2_parameters",
    "upstream_oauth2_client_secret",
    "upstream_oauth2_refresh_token",
    "upstream_oauth2_refresh_store",
    "upstream_oauth2_store_key",
}
_HEADERS: Mapping[AuthKind, str] = {"header": "X-Api-Key"}
_SECRETS = {
    "headers": "upstream_headers",
    "token": "upstream_token",
    "user": "upstream_user",
    "password": "upstream_password",
    "client_id": "upstream_oauth2_client_id",
    "client_secret": "upstream_oauth2_client_secret",
    "parameters": "upstream_oauth2_parameters",
    "refresh_token": "upstream_oauth2_refresh_token",
    "store_key": "upstream_oauth2_store_key",
}


def _check_headers(text: str) -> str:
    parse_headers(text)
    return text


_CHECKS: Mapping[str, Callable[[str], str]] = {
    "token": check_token,
    "headers": _check_headers,
    "store_key": check_keys,
}


def endpoint_of(settings: "Settings", environ: Mapping[str, str]) -> Endpoint:
    """Return the external API with the proxies that the environment names.

    Raises:
        ConfigError: settings do not fit together, or a file or a proxy cannot be used.
    """
    body = settings.upstream_body.get_secret_value() if settings.upstream_body is not None else None
    name = partial(setting_name, settings.source)
    if body is not None and settings.upstream_method != "POST":
        raise ConfigError(f"{name('upstream_body')} has no effect: set {name('upstream_method')}=POST, or remove it")
    if settings.upstream_bulk_url and PLACEHOLDER in (body or ""):
        raise ConfigError(
            f"{name('upstream_body')} contains {PLACEHOLDER}, and a bulk request has its IDs in {name('upstream_bulk_url')}:"
            " remove one of the two"
        )
    return Endpoint(
        url=requested_url(settings),
        order_url=_order_url(settings),
        method=settings.upstream_method,
        body=body,
        access=_access(settings, environ),
        statuses=parse_status_overrides(settings.upstream_status or ""),
        responses=_responses(settings),
        kind=settings.upstream_client,
        proxy=proxy_for(requested_url(settings), environ),
    )


def _order_url(settings: "Settings") -> str:
    """Return the URL of a single order if requests go to a list on the same server."""
    single, requested = urlsplit(settings.upstream_url), urlsplit(requested_url(settings))
    return settings.upstream_url if (single.scheme, single.netloc) == (requested.scheme, requested.netloc) else ""


def _responses(settings: "Settings") -> tuple[ResponseRule, ...]:
    if not settings.responses:
        return ()
    from ingest.sources.response_rules import response_rules_of  # noqa: PLC0415  only some need it

    return response_rules_of(settings)


def requested_url(settings: "Settings") -> str:
    """Return the URL of requests. In a bulk request, several IDs take the place of one."""
    return settings.upstream_bulk_url.replace(BULK_PLACEHOLDER, PLACEHOLDER) or settings.upstream_url


def _access(settings: "Settings", environ: Mapping[str, str]) -> Access:
    kind = _kind(settings)
    auth = setting_name(settings.source, "upstream_auth")
    for field, kinds in _USED_BY.items():
        name = setting_name(settings.source, field)
        if kind in kinds and field not in _OPTIONAL and getattr(settings, field) is None:
            raise ConfigError(f"{name} is missing: {auth}={kind} needs it")
        if kind not in kinds and getattr(settings, field):
            raise ConfigError(f"{name} has no effect: set {auth}={kinds[0]}, or remove it")
    if kind == "oauth2":
        check_grant(settings)
    # A file that is empty now may have headers later.
    given = {role: field for role, field in _SECRETS.items() if getattr(settings, field) or settings.file_of(field)}
    secrets = {role: _secret(settings, role, field) for role, field in given.items()}
    header = settings.upstream_auth_header or _HEADERS.get(kind, "Authorization")
    access = Access(kind, secrets, header, oauth2_of(settings, environ) if kind == "oauth2" else None, _tls(settings))
    _check_authorization(access, settings)
    return access


def _kind(settings: "Settings") -> AuthKind:
    # Before this setting existed, a token implied bearer.
    is_bearer = settings.upstream_auth == "none" and settings.upstream_token is not None
    return "bearer" if is_bearer else settings.upstream_auth


def _secret(settings: "Settings", role: str, field: str) -> Secret:
    value = getattr(settings, field).get_secret_value()
    check = _CHECKS.get(role, check_secret)
    return Secret(file_setting(settings.source, field), value, settings.file_of(field), check)


def _check_authorization(access: Access, settings: "Settings") -> None:
    name = partial(setting_name, settings.source)
    headers = access.secrets.get("headers")
    own = {name.lower() for name in parse_headers(headers.value)} if headers is not None else set()
    given = "" if access.kind == "none" else access.header.lower()
    if given in own:
        raise ConfigError(f"{name('upstream_headers')}: {given} is set by {name('upstream_auth')}={access.kind}")
    if "@" in urlsplit(requested_url(settings)).netloc and "authorization" in {given, *own}:
        raise ConfigError(f"{name('upstream_url')}: contains a user, which is another credential: remove one of them")


def _tls(settings: "Settings") -> TlsFiles:
    ca, cert, key = settings.upstream_ca_file, settings.upstream_cert_file, settings.upstream_key_file
    name = partial(setting_name, settings.source)
    if key and not cert:
        raise ConfigError(f"{name('upstream_key_file')} is set without {name('upstream_cert_file')}")
    urls = (requested_url(settings), settings.upstream_oauth2_url or "")
    if (ca or cert) and not any(url.lower().startswith("https://") for url in urls):
        file = "upstream_ca_file" if ca else "upstream_cert_file"
        raise ConfigError(f"{name(file)} is set, but {name('upstream_url')} does not start with https://")
    return TlsFiles(*(Path(path) if path else None for path in (ca, cert, key)))

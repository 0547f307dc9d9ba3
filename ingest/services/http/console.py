"""Builds the console of `ingest api` from the settings and the connections of a process."""

import hashlib
import ipaddress
import secrets
from datetime import timedelta
from functools import partial

from ingest.api.console.console import Console
from ingest.api.console.forwarded_users import ForwardedUsers
from ingest.api.console.parts import ConsoleParts
from ingest.api.console.sessions import LONGEST, Sessions
from ingest.api.console.visitors import Visitors
from ingest.api.http.admitting import Admission
from ingest.domain.api_key import Scope
from ingest.domain.errors import ConfigError
from ingest.operations.backends import Backends
from ingest.operations.state.history import History
from ingest.operations.state.snapshots import Snapshots
from ingest.queue.operate.ended_sessions import EndedSessions
from ingest.services.http.api_connections import RouteConnections
from ingest.services.http.served_sources import ServedSources
from ingest.services.order_decoding import open_order_decoder
from ingest.settings import Settings
from ingest.settings.types import split_commas


def random_secret() -> bytes:
    """Return a secret for the sessions of one start."""
    return secrets.token_bytes(32)


def console_secret(settings: Settings) -> bytes:
    """Return the secret that signs the sessions of all processes.

    Raises:
        ConfigError: the settings of the reverse proxy are incomplete.
    """
    if settings.console_proxy_header is not None and settings.console_proxies is None:
        raise ConfigError("INGEST_CONSOLE_PROXY_HEADER needs INGEST_CONSOLE_PROXIES: the addresses that may send it")
    if settings.console_secret is None:
        return random_secret()
    return hashlib.sha256(settings.console_secret.get_secret_value().encode()).digest()


def console_of(
    settings: Settings, sources: ServedSources, connections: RouteConnections, access: Admission, secret: bytes
) -> Console:
    """Build the console of one process."""
    listed = [Backends.of(each) for each in sources.settings.values()]
    deployment = next(iter(sources.settings.values()))
    ended = EndedSessions(connections.redis, Backends.of(deployment).deployment, timedelta(seconds=LONGEST))
    snapshots = Snapshots(connections.redis, listed, pool=connections.pool)
    decoders = {name: partial(open_order_decoder, each) for name, each in sources.settings.items()}
    parts = ConsoleParts(
        settings,
        sources.settings,
        connections.sources,
        snapshots,
        History(connections.redis, listed, snapshots),
        connections.controls,
        connections.groups,
        connections.counts,
        decoders,
        connections.job_runs,
    )
    return Console(Visitors(access, Sessions(secret), ended, _forwarded(settings)), parts)


def _forwarded(settings: Settings) -> ForwardedUsers | None:
    if settings.console_proxy_header is None:
        return None
    networks = [ipaddress.ip_network(each, strict=False) for each in split_commas(settings.console_proxies or "")]
    scopes = frozenset(map(Scope, split_commas(settings.console_proxy_scopes)))
    return ForwardedUsers(settings.console_proxy_header, networks, scopes)

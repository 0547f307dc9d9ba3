"""Opens the transports and the credential for requests to the external API, and watches their files."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import datetime

from ingest.domain.errors import ConfigError
from ingest.domain.fetch.token_store import LONGEST_EXCHANGE
from ingest.files.watch import CHECK_EVERY, WatchedFiles, watching
from ingest.upstream.access.endpoint import Access, Credential, Endpoint, FixedCredential, fixed_headers
from ingest.upstream.access.oauth2 import OAuth2Credential
from ingest.upstream.access.sealing import Sealing
from ingest.upstream.access.secrets import Secrets
from ingest.upstream.access.shared_token import SharedToken
from ingest.upstream.access.token_file import TokenFile
from ingest.upstream.access.token_memory import TokenMemory
from ingest.upstream.access.token_request import Authority
from ingest.upstream.http.replacement import ReplaceableTransport
from ingest.upstream.http.tls_context import TlsFiles, UnusableFile
from ingest.upstream.http.transport import Options, Transport, UpstreamLimits
from ingest.upstream.ruled_responses import ERROR_BODY

# The response of an authorization server, in bytes.
_TOKEN_BODY = 256 * 1024

OpenTransport = Callable[[Options], AbstractAsyncContextManager[Transport]]


class _Tls:
    """The certificates in use, and the transports that use them."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._transports: list[ReplaceableTransport] = []
        try:
            self.material = files.read()
        except UnusableFile as error:
            raise ConfigError(str(error)) from None

    def watched(self) -> list[WatchedFiles]:
        names = "INGEST_UPSTREAM_CA_FILE, INGEST_UPSTREAM_CERT_FILE, INGEST_UPSTREAM_KEY_FILE"
        return [WatchedFiles(names, paths, self._load)] if (paths := self._files.paths()) else []

    def options(self, url: str, limits: UpstreamLimits, proxy: str | None, error_body: int) -> Options:
        is_tls = url.lower().startswith("https://")
        return Options(limits, is_tls, proxy, self.material if is_tls else None, error_body)

    async def opened(
        self,
        stack: AsyncExitStack,
        opener: OpenTransport,
        url: str,
        limits: UpstreamLimits,
        proxy: str | None,
        error_body: int = 0,
    ) -> ReplaceableTransport:
        transport = ReplaceableTransport(lambda: opener(self.options(url, limits, proxy, error_body)), limits.total)
        await stack.enter_async_context(transport)
        self._transports.append(transport)
        return transport

    async def _load(self) -> None:
        material = await asyncio.to_thread(self._files.read)
        if material == self.material:
            return
        before, self.material = self.material, material
        try:
            for transport in self._transports:
                await transport.reopen()
        except BaseException:
            self.material = before
            raise


@asynccontextmanager
async def open_access(
    endpoint: Endpoint, opener: OpenTransport, limits: UpstreamLimits, now: Callable[[], datetime]
) -> AsyncIterator[tuple[ReplaceableTransport, Credential]]:
    """Open a transport to the external API and the credential for it.

    Raises:
        ConfigError: a certificate or a file with a secret cannot be used.
    """
    access = endpoint.access
    async with AsyncExitStack() as stack:
        tls = _Tls(access.tls)
        secrets = Secrets(access.secrets)
        await secrets.start()
        error_body = ERROR_BODY if endpoint.responses else 0
        transport = await tls.opened(stack, opener, endpoint.url, limits, endpoint.proxy, error_body)

        def headers() -> Mapping[str, str]:
            return fixed_headers(endpoint, secrets.values)

        credential: FixedCredential | OAuth2Credential
        if (oauth2 := access.oauth2) is None:
            credential = FixedCredential(headers)
        else:
            token_limits = replace(limits, total=min(limits.total, LONGEST_EXCHANGE), body=_TOKEN_BODY)
            to_authority = await tls.opened(stack, opener, oauth2.url, token_limits, oauth2.proxy, ERROR_BODY)
            authority = Authority(to_authority, oauth2, lambda: secrets.values, now)
            credential = _oauth2_credential(authority, access, secrets, headers, now)
            stack.push_async_callback(credential.close)
        watched = [*secrets.files(credential.update), *tls.watched()]
        await stack.enter_async_context(watching(watched, CHECK_EVERY))
        yield transport, credential


def _oauth2_credential(
    authority: Authority,
    access: Access,
    secrets: Secrets,
    headers: Callable[[], Mapping[str, str]],
    now: Callable[[], datetime],
) -> OAuth2Credential:
    oauth2 = access.oauth2
    if oauth2 is None or oauth2.grant != "refresh_token":
        return OAuth2Credential(authority.token, headers, access.header)
    shared = SharedToken(
        authority.token,
        lambda: secrets.values["refresh_token"],
        oauth2.store or TokenMemory(now),
        Sealing(lambda: secrets.values.get("store_key", ""), accepts_plain=isinstance(oauth2.store, TokenFile)),
    )
    return OAuth2Credential(shared.token, headers, access.header, finish=LONGEST_EXCHANGE)

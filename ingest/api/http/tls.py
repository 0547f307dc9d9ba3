"""The certificate of the HTTP API, which is checked at the start and loaded again when its files change."""

import ssl
from collections.abc import Sequence
from pathlib import Path

from ingest.domain.errors import ConfigError
from ingest.files.regular import open_regular
from ingest.files.watch import WatchedFiles

_SETTINGS = "INGEST_API_CERT_FILE"


class ServerTls:
    """TLS of one process. Later connections use the files' current content.

    Args:
        paths: PEM files of the certificate, with those that lead to its authority, and of its private key, which the first
            may contain.

    Raises:
        ValueError: The content cannot be used.
        OSError: A file cannot be read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self.context = _context()
        _load(self.context, paths)

    def watched(self) -> WatchedFiles:
        """The files, used again when they change. If they cannot be used, nothing changes."""
        return WatchedFiles(_SETTINGS, self._paths, self._load)

    async def _load(self) -> None:
        # First into another context, because a certificate whose key does not fit would replace the one in use.
        _load(_context(), self._paths)
        _load(self.context, self._paths)


def checked_tls(cert: str | None, key: str | None) -> ServerTls | None:
    """The configured TLS, or None for HTTP without TLS.

    Raises:
        ConfigError: The files cannot be used.
    """
    if cert is None:
        if key is not None:
            raise ConfigError("INGEST_API_KEY_FILE is set without INGEST_API_CERT_FILE")
        return None
    try:
        return ServerTls([Path(name) for name in (cert, key) if name is not None])
    except OSError as error:
        file = error.filename or "a file"
        raise ConfigError(f"{_SETTINGS}: cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{_SETTINGS}: {error}") from error


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load(context: ssl.SSLContext, paths: Sequence[Path]) -> None:
    for path in paths:
        open_regular(path).close()  # for an error that names the file
    try:
        # With an empty password, a key that needs one is an error. Without one, OpenSSL would prompt for it on the terminal.
        context.load_cert_chain(paths[0], paths[-1], password=lambda: b"")
    except ssl.SSLError as error:
        reason = (error.reason or "not a certificate and its key").replace("_", " ").lower()
        raise ValueError(f"the certificate and its key cannot be used: {reason}") from None

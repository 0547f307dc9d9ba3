"""The certificate of the HTTP API: checked at the start, and used again when its files change."""

import ssl
from pathlib import Path

from ingest.domain.errors import ConfigError
from ingest.files.regular import open_regular

_SETTINGS = "INGEST_API_CERT_FILE"


class ServerTls:
    """TLS of one process. Later connections use the files' current content.

    Args:
        cert: PEM file of the certificate, with those that lead to its authority.
        key: PEM file of its private key, or None if `cert` contains it.
    """

    settings = _SETTINGS

    def __init__(self, cert: Path, key: Path | None) -> None:
        self._cert = cert
        self._key = key
        self.context = _context()

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files."""
        return (self._cert,) if self._key is None else (self._cert, self._key)

    async def load(self) -> None:
        """Use the current files. If they cannot be used, nothing changes.

        Raises:
            ValueError: the content cannot be used.
            OSError: a file cannot be read.
        """
        # First where it does no harm: a certificate whose key does not fit would have replaced the one in use.
        _load(_context(), self._cert, self._key)
        _load(self.context, self._cert, self._key)


def checked_tls(cert: str | None, key: str | None) -> ServerTls | None:
    """The configured TLS, or None for HTTP without TLS.

    Raises:
        ConfigError: the files cannot be used.
    """
    if cert is None:
        if key is not None:
            raise ConfigError("INGEST_API_KEY_FILE is set without INGEST_API_CERT_FILE")
        return None
    tls = ServerTls(Path(cert), Path(key) if key is not None else None)
    try:
        _load(tls.context, *tls.paths)
    except OSError as error:
        file = error.filename or "a file"
        raise ConfigError(f"{_SETTINGS}: cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{_SETTINGS}: {error}") from error
    return tls


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load(context: ssl.SSLContext, cert: Path, key: Path | None = None) -> None:
    for path in (cert, key or cert):
        open_regular(path).close()  # for an error that names the file
    try:
        # With an empty password, a key that needs one is an error. Without one, OpenSSL would prompt for it on the terminal.
        context.load_cert_chain(cert, key, password=lambda: b"")
    except ssl.SSLError as error:
        reason = (error.reason or "not a certificate and its key").replace("_", " ").lower()
        raise ValueError(f"the certificate and its key cannot be used: {reason}") from None

"""TLS for the simulated API, with a certificate and optional client certificates."""

import ssl
from pathlib import Path

from ingest.domain.errors import ConfigError


def server_tls(cert: Path | None, key: Path | None, client_ca: Path | None) -> ssl.SSLContext | None:
    """Return the TLS settings of a server, or None for plain HTTP.

    Args:
        cert: PEM file with the certificate.
        key: PEM file with the key, unless `cert` contains it.
        client_ca: PEM file with the CA of client certificates, or None if clients do not need a certificate.

    Raises:
        ConfigError: a file cannot be used, or there is no certificate.
    """
    if cert is None:
        if key or client_ca:
            raise ConfigError("--tls-key and --client-ca need --tls-cert")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key)
        if client_ca is not None:
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or "they are not PEM files"
        raise ConfigError(f"--tls-cert, --tls-key, --client-ca: cannot be used: {reason}") from None
    return context

"""Connects to the external API's host step by step, so that a failure names its step: name, connection, certificate.

No request is sent.
"""

import asyncio
import os
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from ingest.domain.os_errors import reason_of
from ingest.upstream.http.tls_context import TlsFiles, context_of, reason_of_tls
from ingest.upstream.http.transport import DEFAULT_PORTS

Step = Literal["name", "connection", "certificate", "tls"]


@dataclass(frozen=True, slots=True)
class Host:
    """A host of a URL."""

    name: str
    port: int
    is_tls: bool

    @classmethod
    def of(cls, url: str) -> "Host":
        """The host of an http or https URL."""
        parts = urlsplit(url)
        scheme = parts.scheme.lower()
        return cls(parts.hostname or "", parts.port or DEFAULT_PORTS.get(scheme, 80), scheme == "https")

    def __str__(self) -> str:
        return f"[{self.name}]:{self.port}" if ":" in self.name else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Reached:
    """A host that answers.

    Attributes:
        seconds: until a connection was open, name and TLS included.
        tls: the version of TLS, or empty without it.
        expires_at: the end of its certificate in Unix time, or None without TLS.
    """

    seconds: float
    tls: str = ""
    expires_at: float | None = None


class Unreachable(Exception):
    """A host that cannot be reached.

    Attributes:
        step: which one failed.
    """

    def __init__(self, step: Step, reason: str) -> None:
        super().__init__(reason)
        self.step = step


async def reach(host: Host, files: TlsFiles, within: float) -> Reached:
    """Open a connection as requests do, and close it. Each step may take `within` seconds.

    Raises:
        Unreachable: names the step and the reason.
        UnusableFile: a certificate of ours cannot be used.
    """
    started = time.monotonic()
    context = context_of(files.read()) if host.is_tls else None
    step: Step = "name"
    try:
        async with asyncio.timeout(within):
            await asyncio.get_running_loop().getaddrinfo(host.name, host.port, type=socket.SOCK_STREAM)
        step = "connection"
        async with asyncio.timeout(within):
            _, writer = await asyncio.open_connection(
                host.name, host.port, ssl=context, server_hostname=host.name if context else None
            )
    except ssl.SSLCertVerificationError as error:
        raise Unreachable("certificate", error.verify_message or str(error)) from None
    except ssl.SSLError as error:
        raise Unreachable("tls", reason_of_tls(error)) from None
    except ConnectionResetError as error:
        raise Unreachable("tls", reason_of(error)) from None  # without TLS, nothing is read that could fail so
    except TimeoutError:
        missing = "no response from DNS" if step == "name" else "no connection"
        raise Unreachable(step, f"{missing} within {within:g} s") from None
    except (OSError, UnicodeError) as error:
        raise Unreachable(step, _reason(error)) from None
    try:
        return _reached(writer, time.monotonic() - started)
    finally:
        writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await writer.wait_closed()


def _reached(writer: asyncio.StreamWriter, seconds: float) -> Reached:
    session: Any = writer.get_extra_info("ssl_object")
    if session is None:
        return Reached(seconds)
    certificate = writer.get_extra_info("peercert") or {}
    expires = certificate.get("notAfter")
    return Reached(seconds, str(session.version()), ssl.cert_time_to_seconds(expires) if expires else None)


def _reason(error: OSError | UnicodeError) -> str:
    text = getattr(error, "strerror", None)
    if isinstance(error, OSError) and not isinstance(error, socket.gaierror) and error.errno is not None:
        # asyncio's own texts name addresses of several attempts.
        return os.strerror(error.errno)
    return str(text or "it is not valid")

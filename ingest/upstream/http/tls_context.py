"""Certificates for requests: the trusted authority, and the certificate that identifies us.

The files are read once for a transport and kept in memory, so that a file that is being written is never used. A later connection uses the
same certificates as the first one.
"""

import os
import ssl
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec

from ingest.files.regular import open_regular


class UnusableFile(ValueError):
    """A file cannot be used. The message names the setting, without its content."""


class TlsFiles(msgspec.Struct, frozen=True):
    """PEM files.

    Attributes:
        ca: authorities to trust instead of the system's.
        cert: our certificate, with those that lead to its authority.
        key: its private key, without a password, or None if `cert` contains it.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def paths(self) -> tuple[Path, ...]:
        """Return those that are set."""
        return tuple(path for path in (self.ca, self.cert, self.key) if path is not None)

    def read(self) -> "TlsMaterial | None":
        """Return their checked content, or None if none is set.

        Raises:
            UnusableFile: a file cannot be read, or used, or the key is not the certificate's.
        """
        if not self.paths():
            return None
        material = TlsMaterial(
            _read("INGEST_UPSTREAM_CA_FILE", self.ca),
            _read("INGEST_UPSTREAM_CERT_FILE", self.cert),
            _read("INGEST_UPSTREAM_KEY_FILE", self.key),
        )
        context_of(material)
        return material


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """The content of the files."""

    ca: bytes | None = None
    cert: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)


_in_use: WeakValueDictionary[tuple[TlsMaterial | None, ssl.DefaultVerifyPaths], ssl.SSLContext] = WeakValueDictionary()


def context_of(material: TlsMaterial | None) -> ssl.SSLContext:
    """Return the TLS settings of a client. Without material, they are Python's current trust settings.

    Raises:
        UnusableFile: the material cannot be used.
    """
    context = _trusting(material.ca if material is not None else None)
    context.set_alpn_protocols(["http/1.1"])
    if material is not None and material.cert is not None:
        with _as_file(material.cert) as cert, _as_file(material.key or material.cert) as key:
            try:
                # With an empty password, a key that needs one is an error. Without one, OpenSSL would prompt for it on the terminal.
                context.load_cert_chain(cert, key, password=lambda: b"")
            except (ssl.SSLError, ValueError) as error:
                raise UnusableFile(_why_not(error)) from None
        # Apache requests a certificate after it has read a request, when only some paths need one.
        context.post_handshake_auth = True
    return context


def shared_context_of(material: TlsMaterial | None) -> ssl.SSLContext:
    """Like `context_of`, but return the same context as long as a transport uses it. Do not change it.

    The system's authorities take 0.8 MB in each context, and a process may have a transport for each of many sources.
    """
    key = (material, ssl.get_default_verify_paths())
    context = _in_use.get(key)
    if context is None:
        context = _in_use[key] = context_of(material)
    return context


def reason_of_tls(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason, such as `tlsv13 alert certificate required`."""
    return (error.reason or "TLS failure").replace("_", " ").lower()


def is_alert(error: BaseException | None) -> bool:
    """Return whether the server has ended the connection with a reason. With TLS 1.3 it rejects us in this way, after our handshake."""
    return isinstance(error, ssl.SSLError) and "_ALERT_" in (error.reason or "")


def _trusting(ca: bytes | None) -> ssl.SSLContext:
    if ca is None:
        return ssl.create_default_context()
    # Without an authority, the context would trust the system's.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Comments, and the mark that editors put in front, may be anything.
        context.load_verify_locations(cadata=ca.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        # Certificates before the error have been loaded. A file that is being written has to be rejected as a whole.
        raise UnusableFile(
            "INGEST_UPSTREAM_CA_FILE: contains no certificates in PEM format, or one is cut off"
        ) from None
    return context


def _why_not(error: Exception) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if reason == "KEY_VALUES_MISMATCH":
        return "INGEST_UPSTREAM_KEY_FILE: is not the key of the certificate in INGEST_UPSTREAM_CERT_FILE"
    return "INGEST_UPSTREAM_CERT_FILE, INGEST_UPSTREAM_KEY_FILE: contain no certificate and key in PEM format, or the key needs a password"


def _read(setting: str, path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError as error:
        raise UnusableFile(f"{setting}: cannot read {path}: {error.strerror}") from None


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A file with this content, which Python's TLS needs for a key: in memory where the system can do that."""
    if sys.platform == "linux":
        fd = os.memfd_create("tls")
        try:
            os.write(fd, content)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        with tempfile.NamedTemporaryFile() as file:  # readable by us only
            file.write(content)
            file.flush()
            yield file.name

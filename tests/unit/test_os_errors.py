"""The error for a server that cannot be reached."""

import errno

import pytest

from ingest.domain.os_errors import plain, reason_of

REFUSED = f"[Errno {errno.ECONNREFUSED}] Connect call failed"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{REFUSED} ('::1', 6379, 0, 0)", "cannot connect to [::1]:6379: Connection refused"),
        (
            f"Multiple exceptions: {REFUSED} ('::1', 1, 0, 0), {REFUSED} ('127.0.0.1', 1)",
            "cannot connect to [::1]:1: Connection refused, cannot connect to 127.0.0.1:1: Connection refused",
        ),
        (
            "Error 111 connecting to h:1. Connect call failed ('127.0.0.1', 1).",
            "cannot connect to h:1: Connection refused",
        ),
        ("Error 111 connecting to h:1. Connection refused.", "cannot connect to h:1: Connection refused"),
        ("Error -2 connecting to h:1. Name or service not known.", "cannot connect to h:1: Name or service not known"),
        ("Error connecting to h:1.", "Error connecting to h:1."),
        ("[Errno -2] Name or service not known", "Name or service not known"),
        ("[Errno 111] Connection refused", "Connection refused"),
        (f"[Errno {errno.ECONNRESET}] Connection reset by peer", "Connection reset by peer"),
        (
            "Error while reading from h:1 : (104, 'Connection reset by peer')",
            "the connection to h:1 failed: Connection reset by peer",
        ),
        ("Error while reading from h:1: ('Connection lost',)", "the connection to h:1 failed: Connection lost"),
    ],
)
def test_each_address_that_was_tried_is_named(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_the_reason_alone_has_no_address() -> None:
    assert reason_of(OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")) == "Connection refused"
    assert reason_of(OSError(8, "nodename nor servname provided")) == "nodename nor servname provided"
    assert reason_of(ConnectionResetError()) == "the server closed the connection during the TLS handshake"
    assert reason_of(OSError()) == "OSError"

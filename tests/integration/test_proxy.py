"""The proxy of the tests behaves as documented, so that the tests measure the product."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from proxy import Proxy
from support import eventually_sync


class Echo:
    """Echoes its input to each client in a separate thread."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                return

    def close(self) -> None:
        # Closing the socket does not wake the accepting thread.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    with closing(Echo()) as echo:
        yield echo


@pytest.fixture
def proxy(echo: Echo) -> Iterator[Proxy]:
    with Proxy(echo.port) as proxy:
        yield proxy


def client(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=20)


def is_silent(connection: socket.socket, seconds: float = 0.3) -> bool:
    """Whether nothing comes for a while: not data, not an end, not a reset."""
    connection.settimeout(seconds)
    try:
        connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(20)
    return False


def exchange(connection: socket.socket, data: bytes) -> bytes:
    """Send data, and return the response."""
    threading.Thread(target=connection.sendall, args=(data,), daemon=True).start()
    answer = b""
    while len(answer) < len(data):
        chunk = connection.recv(65536)
        assert chunk, "the connection ended early"
        answer += chunk
    return answer


def test_forwards_everything_both_ways_and_the_end(proxy: Proxy) -> None:
    data = bytes(range(256)) * 10_000
    with client(proxy) as connection:
        answer = exchange(connection, data)
        connection.shutdown(socket.SHUT_WR)
        end = connection.recv(1)

    assert answer == data
    assert end == b""
    eventually_sync(lambda: proxy.connections == 0)


def test_cut_resets_every_connection_and_new_ones_work(proxy: Proxy) -> None:
    with client(proxy) as one, client(proxy) as two:
        exchange(one, b"a")
        exchange(two, b"a")

        count = proxy.cut()

        for connection in (one, two):
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
    with client(proxy) as new:
        assert exchange(new, b"b") == b"b"
    assert count == 2


def test_frozen_it_keeps_connections_open_and_forwards_nothing_until_thawed(proxy: Proxy) -> None:
    with client(proxy) as connection:
        exchange(connection, b"before")

        proxy.freeze()
        connection.sendall(b"during")

        assert is_silent(connection)
        proxy.thaw()
        assert connection.recv(6) == b"during"
        assert exchange(connection, b"after") == b"after"


def test_refusing_it_refuses_new_connections_and_keeps_the_open_ones(proxy: Proxy) -> None:
    with client(proxy) as connection:
        exchange(connection, b"a")

        proxy.refuse()

        with pytest.raises(ConnectionRefusedError):
            client(proxy)
        assert exchange(connection, b"b") == b"b"
    proxy.accept()
    with client(proxy) as new:
        assert exchange(new, b"c") == b"c"


def test_delay_holds_data_back_in_its_order(proxy: Proxy) -> None:
    with client(proxy) as connection:
        exchange(connection, b"a")

        proxy.delay(0.2)
        started = time.monotonic()
        answer = exchange(connection, b"slow")
        took = time.monotonic() - started
        connection.sendall(b"1")
        proxy.delay(0)
        connection.sendall(b"2")

        assert answer == b"slow"
        assert took >= 0.4  # there and back
        assert connection.recv(1) + connection.recv(1) == b"12"

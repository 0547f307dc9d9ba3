"""Large and compressed bodies leave the event loop to others, and a body that decompresses to too much ends at the limit."""

import asyncio
import gzip
import math
import threading
import time
import tracemalloc
from typing import Any

import pytest

from ingest.domain.fetch.exchange import FetchRequest
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.upstream.http.content_coding import Compressed
from ingest.upstream.http.heavy_bodies import HeavyBodies
from ingest.upstream.http.http1_connection import Http1Connection
from ingest.upstream.http.transport import TooLarge

MB = 1024 * 1024
PART = 300 * 1024
LIMIT = 4 * MB
BOMB = gzip.compress(b" " * 64 * MB)


class Socket:
    """Records when the connection reads."""

    def __init__(self) -> None:
        self.reads = True

    def write(self, data: bytes) -> None:
        pass

    def abort(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True


def connection(heavy: HeavyBodies, length: int) -> tuple[Http1Connection, Any, asyncio.Future[Any]]:
    """A connection that has received the head of a response."""
    opened, socket = Http1Connection(LIMIT, 0, [], lambda _: None, heavy), Socket()
    opened.connection_made(socket)  # type: ignore[arg-type]  as much of it as is used
    answered = opened.request(b"GET / HTTP/1.1\r\n\r\n", 0.0, math.inf, None)
    opened.data_received(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length)
    return opened, socket, answered


async def test_each_iteration_of_the_loop_receives_one_part_of_all_large_bodies() -> None:
    heavy, parts = HeavyBodies(), 6
    connections = [connection(heavy, parts * PART) for _ in range(5)]
    received = []

    for _ in range(5 * parts):
        reading = [opened for opened, socket, answered in connections if socket.reads and not answered.done()]
        received.append(len(reading))
        for opened in reading:
            opened.data_received(b"x" * PART)
        await asyncio.sleep(0)

    assert all(answered.done() for _, _, answered in connections)
    assert received[0] == 5, "no body is large yet"
    assert max(received[1:]) == 1


async def test_a_small_body_is_received_without_a_turn() -> None:
    opened, socket, answered = connection(HeavyBodies(), 200 * 1024)

    for _ in range(100):
        opened.data_received(b"x" * 2048)
        assert socket.reads

    assert len(await answered) == 200 * 1024


async def test_a_bomb_ends_at_the_limit_in_bounded_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge):
            await Compressed(b"gzip", BOMB, LIMIT).content(asyncio.Lock())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 3 * LIMIT


async def test_a_bomb_takes_little_of_the_time_of_the_loop() -> None:
    in_loop = time.thread_time()
    with pytest.raises(TooLarge):
        await Compressed(b"gzip", BOMB, LIMIT).content(asyncio.Lock())
    in_loop = time.thread_time() - in_loop

    whole = time.thread_time()
    for _ in range(3):
        gzip.decompress(gzip.compress(b" " * LIMIT))
    whole = time.thread_time() - whole

    assert in_loop < whole / 3


async def test_large_contents_are_decompressed_one_after_the_other() -> None:
    turn = asyncio.Lock()
    body = Compressed(b"gzip", gzip.compress(b"x" * MB), LIMIT)
    await turn.acquire()
    waiting = [asyncio.create_task(body.content(turn)) for _ in range(2)]
    small = await Compressed(b"gzip", gzip.compress(b"x" * 1024), LIMIT).content(turn)
    before = [task.done() for task in waiting]
    turn.release()

    assert (len(small), before) == (1024, [False, False])
    assert [len(content) for content in await asyncio.gather(*waiting)] == [MB, MB]


@pytest.mark.parametrize(("size", "is_in_loop"), [(200 * 1024, True), (300 * 1024, False)])
async def test_a_large_document_is_decoded_outside_of_the_loop(size: int, *, is_in_loop: bool) -> None:
    decoder = OrderDecoder(lambda _body, _order_id: threading.get_ident())

    (thread,) = await decoder.decode(b"x" * size, FetchRequest("a"))

    assert (thread == threading.get_ident()) is is_in_loop


async def test_an_error_of_one_connection_does_not_stop_the_turns_of_others() -> None:
    heavy, resumed = HeavyBodies(), asyncio.Event()
    errors = list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))

    def fail() -> None:
        raise RuntimeError("the connection is closed")

    heavy.wait(fail)
    heavy.wait(resumed.set)
    await asyncio.wait_for(resumed.wait(), 60)

    assert [str(each["exception"]) for each in errors] == ["the connection is closed"]

"""The producer without asyncio: from threads, in forked processes, interrupted, closed."""

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from redis import Redis

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.errors import QueueUnavailable
from ingest.domain.orders.order import InvalidOrderId
from ingest.domain.source_name import InvalidSourceName
from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer_errors import BacklogFull, EnqueueTimeout
from ingest.queue.produce.sync_producer import SyncProducer
from ingest.queue.redis.connection import QueueRefused


@pytest.fixture
def plain_redis(redis_url: str) -> Iterator["Redis"]:
    with Redis.from_url(redis_url) as client:
        yield client


def queued(redis: "Redis", stream: str) -> list[str]:
    return [fields[b"order_id"].decode() for _, fields in redis.xrange(stream)]


def test_orders_of_a_source_go_into_the_queue_of_the_source(
    plain_redis: "Redis", redis_url: str, queue_name: str
) -> None:
    with SyncProducer(redis_url, queue_name, source="shop-de") as producer:
        producer.enqueue("a")
    with pytest.raises(InvalidSourceName):
        SyncProducer(redis_url, queue_name, source="shop:de")

    assert queued(plain_redis, f"ingest:{{{queue_name}/shop-de}}:stream") == ["a"]
    assert queued(plain_redis, f"ingest:{{{queue_name}}}:stream") == []


def test_it_answers_as_the_asyncio_producer_does(
    plain_redis: "Redis", keys: Keys, redis_url: str, queue_name: str
) -> None:
    with SyncProducer(redis_url, queue_name, backlog_limit=3) as producer:
        assert producer.enqueue(["a", Announcement("b", origin="shop")], idempotency_key="k") == 2
        assert producer.enqueue(["a", Announcement("b", origin="shop")], idempotency_key="k") == 2
        assert producer.try_enqueue("urgent", express=True) == 1
        with pytest.raises(BacklogFull):
            producer.try_enqueue(["c", "d"])
        with pytest.raises(EnqueueTimeout):
            producer.enqueue(["c", "d"], timeout=0.05)
        with pytest.raises(InvalidOrderId):
            producer.enqueue("no\nid")

    assert queued(plain_redis, keys.stream) == ["a", "b"]
    assert queued(plain_redis, keys.express) == ["urgent"]


def test_an_iterator_runs_in_the_calling_thread(
    plain_redis: "Redis", keys: Keys, redis_url: str, queue_name: str
) -> None:
    def read(order_id: str) -> Iterator[str]:
        # As a cursor of a database may only be read by its own thread.
        yield f"{order_id}-{threading.get_ident()}"

    with SyncProducer(redis_url, queue_name) as producer:
        producer.enqueue(read("a"))
        producer.try_enqueue(read("b"))
        producer.try_announce(read("c"))

    assert queued(plain_redis, keys.stream) == [f"{order_id}-{threading.get_ident()}" for order_id in "abc"]


def test_a_refused_credential_is_an_error(redis_url: str, queue_name: str) -> None:
    password = urlsplit(redis_url).password or ""

    with SyncProducer(redis_url.replace(password, "wrong"), queue_name) as producer, pytest.raises(QueueRefused):
        producer.enqueue("a")


def test_many_threads_share_one_producer(plain_redis: "Redis", keys: Keys, redis_url: str, queue_name: str) -> None:
    names = [f"order-{number}" for number in range(500)]

    with SyncProducer(redis_url, queue_name) as producer, ThreadPoolExecutor(16) as pool:
        assert list(pool.map(producer.enqueue, names)) == [1] * 500

    assert Counter(queued(plain_redis, keys.stream)) == Counter(names)
    assert [thread.name for thread in threading.enumerate() if thread.name == "ingest-producer"] == []


def test_closed_it_lets_waiting_threads_go_and_connects_anew_when_it_is_used_again(
    plain_redis: "Redis", keys: Keys, redis_url: str, queue_name: str
) -> None:
    told = threading.Event()
    producer = SyncProducer(redis_url, queue_name, backlog_limit=1, on_wait=lambda _: told.set())
    producer.enqueue("a")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(producer.enqueue, "b")
        assert told.wait(20)
        producer.close()
        with pytest.raises(QueueUnavailable, match="closed"):
            waiting.result(20)
    plain_redis.delete(keys.stream)

    assert producer.enqueue("c") == 1
    producer.close()
    producer.close()
    assert queued(plain_redis, keys.stream) == ["c"]


def test_a_url_that_cannot_be_read_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="scheme"):
        SyncProducer("nonsense")


FORKING = """
import os, sys, threading
from ingest import SyncProducer

producer = SyncProducer(sys.argv[1], sys.argv[2])
producer.enqueue("parent-before")
busy = threading.Thread(target=lambda: [producer.enqueue(f"thread-{n}") for n in range(200)])
busy.start()
children = []
for number in range(4):
    if (child := os.fork()) == 0:
        for step in range(20):
            producer.enqueue(f"child-{number}-{step}")
        producer.close() if number % 2 else None
        sys.stdout.flush()
        os._exit(0) if number == 3 else sys.exit(0)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
busy.join()
producer.enqueue("parent-after")
assert codes == [0] * 4, codes
"""


def test_forked_processes_go_on_each_with_its_own_connection(
    plain_redis: "Redis", keys: Keys, redis_url: str, queue_name: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, redis_url, queue_name],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")
    expected = [f"child-{number}-{step}" for number in range(4) for step in range(20)]
    expected += [f"thread-{number}" for number in range(200)] + ["parent-before", "parent-after"]
    assert Counter(queued(plain_redis, keys.stream)) == Counter(expected)


FIRST_CALL = """
import sys
from ingest import SyncProducer

producer = SyncProducer(sys.argv[1], sys.argv[2])
imported = set(sys.modules)
producer.enqueue("a", idempotency_key="k")
producer.try_announce("b", coalesce=60)
print(*sorted(set(sys.modules) - imported))
"""


def test_calls_import_nothing_as_a_process_forked_meanwhile_would_wait_for_that_indefinitely(
    redis_url: str, queue_name: str
) -> None:
    # A name, not an address.
    url = redis_url.replace("127.0.0.1", "localhost")

    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALL, url, queue_name], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout == "\n"


WITHOUT_DESCRIPTORS = """
import os, resource, sys
from ingest import QueueUnavailable, SyncProducer

producer = SyncProducer(sys.argv[1], sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
held = []
while len(held) < 64:
    try:
        held.append(os.dup(0))
    except OSError:
        break
for _ in range(2):
    try:
        producer.try_enqueue("a")
    except QueueUnavailable as error:
        print(error)
for descriptor in held:
    os.close(descriptor)
print(producer.try_enqueue("b"))
"""


def test_where_no_file_descriptor_is_left_calls_fail_until_there_are_some(
    plain_redis: "Redis", keys: Keys, redis_url: str, queue_name: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS, redis_url, queue_name],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )

    assert done.stdout.splitlines() == ["the producer cannot start: Too many open files"] * 2 + ["1"]
    assert queued(plain_redis, keys.stream) == ["b"]


INTERRUPTED = """
import signal, sys
from ingest import SyncProducer

signal.signal(signal.SIGINT, signal.default_int_handler)
producer = SyncProducer(sys.argv[1], on_wait=lambda _: print("waiting", flush=True))
try:
    producer.enqueue("interrupted")
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.readline()
producer.enqueue("wanted")
"""


def test_ctrl_c_ends_a_call_that_waits_for_good_and_an_open_producer_does_not_hold_up_the_exit(
    own_valkey: ValkeyServer,
) -> None:
    own_valkey.stop("nosave")
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", INTERRUPTED, own_valkey.url]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        own_valkey.start()
        _, err = process.communicate("go on\n", timeout=60)

    assert (process.returncode, err) == (0, "")
    with Redis.from_url(own_valkey.url) as redis:
        # The interrupted call may take effect: the signal can arrive before the call has its future.
        assert queued(redis, Keys.of("orders").stream) in (["wanted"], ["interrupted", "wanted"])


def test_a_call_that_has_timed_out_is_not_sent_later(own_valkey: ValkeyServer) -> None:
    own_valkey.stop("nosave")
    with SyncProducer(own_valkey.url, "orders") as producer:
        with pytest.raises(EnqueueTimeout):
            producer.enqueue("given-up", timeout=0.2)
        # The attempt that was on its way, with the order, has failed when another call has.
        with pytest.raises(QueueUnavailable):
            producer.try_enqueue("refused")
        own_valkey.start()
        producer.enqueue("wanted", timeout=30)

    with Redis.from_url(own_valkey.url) as redis:
        assert queued(redis, Keys.of("orders").stream) == ["wanted"]

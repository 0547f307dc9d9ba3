"""`ingest enqueue --express` as a process."""

from redis import Redis
from support import Cli

from ingest.queue.layout.keys import Keys


def test_express_orders_go_to_the_express_lane(cli: Cli, redis_url: str, queue_name: str) -> None:
    done = cli.run("enqueue", "--express", "a", "b")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("2 accepted in ")
    keys = Keys.of(queue_name)
    with Redis.from_url(redis_url) as redis:
        assert [fields for _, fields in redis.xrange(keys.express)] == [{b"order_id": b"a"}, {b"order_id": b"b"}]
        assert redis.exists(keys.stream) == 0

"""The scenarios in which blocks run.

| scenario | state when the first block of a page runs |
|---|---|
| `bare` | an empty folder, no settings, no server |
| `sources` | the settings name an empty Valkey and a PostgreSQL with the tables, and no external API |
| `servers` | the settings name an empty Valkey, a PostgreSQL with the tables, and the simulated API at port 8081 |
| `api` | `servers`, and `ingest api` at port 8080, without API keys |
| `keys` | `servers`, and `ingest api` at port 8080, with an API key for all scopes in `$KEY` |
| `dead-letters` | `servers`, and a worker that has stored 536365 to 536370 and dead-lettered `no-such-order` and `no-such-order-2` |
| `running` | `dead-letters`, and `ingest api` as in `api` |
| `shops` | `servers` for the sources shop-de and shop-uk in `sources.toml`, with a worker that has stored 536365 of both |
| `shops-api` | `shops`, and `ingest api` at port 8080, without API keys |
| `simulated-shop` | the settings name an empty Valkey, a PostgreSQL with the tables, and the source shop-de, a simulated shop with a list, with a worker |

Further scenarios belong here as soon as a page needs one.
"""

from collections.abc import Callable, Mapping
from functools import partial
from urllib.request import urlopen

from redis import Redis

from docs.stage import Stage
from ingest.queue.layout.keys import Keys

STORED = ("536365", "536366", "536367", "536368", "536369", "536370")
DEAD = ("no-such-order", "no-such-order-2")
SHOPS = ("shop-de", "shop-uk")


def bare(stage: Stage) -> None:
    del stage


def sources(stage: Stage) -> None:
    stage.use_servers()


def servers(stage: Stage) -> None:
    stage.use_servers()
    stage.start("upstream", "--port", str(stage.port(8081)))
    stage.env["INGEST_UPSTREAM_URL"] = f"http://127.0.0.1:{stage.port(8081)}/orders/{{order_id}}"


def api(stage: Stage) -> None:
    servers(stage)
    _start_api(stage)


def keys(stage: Stage) -> None:
    servers(stage)
    stage.env["INGEST_API_KEYS_FILE"] = str(stage.folder / "keys.toml")
    scopes = [word for scope in ("enqueue", "push", "read", "operate", "erase") for word in ("--scope", scope)]
    stage.env["KEY"] = stage.run("api-key", "create", "tester", *scopes).strip()
    _start_api(stage)


def _start_api(stage: Stage) -> None:
    stage.start("api")
    stage.wait(lambda: _responds(f"http://127.0.0.1:{stage.port(8080)}/healthz"), "the API")


def running(stage: Stage) -> None:
    dead_letters(stage)
    _start_api(stage)


def dead_letters(stage: Stage) -> None:
    servers(stage)
    stage.start("worker")
    stage.run("enqueue", *STORED, *DEAD)
    _wait_for(stage, {"orders": len(DEAD)})


def shops(stage: Stage) -> None:
    servers(stage)
    url = stage.env.pop("INGEST_UPSTREAM_URL")
    sections = [f'[sources.{name}.upstream]\nurl = "{url}"\n' for name in SHOPS]
    (stage.folder / "sources.toml").write_text("\n".join(sections), "utf-8")
    stage.env["INGEST_SOURCES"] = str(stage.folder / "sources.toml")
    stage.start("worker")
    for name in SHOPS:
        stage.run("enqueue", "--source", name, STORED[0])
    _wait_for(stage, {f"orders/{name}": 0 for name in SHOPS})


def shops_api(stage: Stage) -> None:
    shops(stage)
    _start_api(stage)


def simulated_shop(stage: Stage) -> None:
    stage.use_servers()
    stage.start("upstream", "--shape", "woocommerce", "--orders", "50", "--port", str(stage.port(8093)))
    (stage.folder / "key").write_text("ck_simulated", "utf-8")
    (stage.folder / "secret").write_text("cs_simulated", "utf-8")
    (stage.folder / "sources.toml").write_text(
        f"""[sources.shop-de]
kind = "woocommerce"
base_url = "http://127.0.0.1:{stage.port(8093)}"
consumer_key_file = "key"
consumer_secret_file = "secret"
""",
        "utf-8",
    )
    stage.env["INGEST_SOURCES"] = str(stage.folder / "sources.toml")
    stage.start("worker")


def _responds(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _wait_for(stage: Stage, expected: Mapping[str, int]) -> None:
    """Wait until the queues are empty, except for as many dead letters as expected."""
    with Redis.from_url(stage.redis_url) as redis:
        for name, dead in expected.items():
            stage.wait(partial(_is_finished, redis, Keys.of(name), dead), f"the orders of {name}")


def _is_finished(redis: Redis, queue: Keys, dead: int) -> bool:
    return redis.xlen(queue.dead) == dead and redis.xlen(queue.stream) + redis.xlen(queue.express) == 0


SCENARIOS: Mapping[str, Callable[[Stage], None]] = {
    "bare": bare,
    "sources": sources,
    "servers": servers,
    "api": api,
    "keys": keys,
    "dead-letters": dead_letters,
    "running": running,
    "shops": shops,
    "shops-api": shops_api,
    "simulated-shop": simulated_shop,
}

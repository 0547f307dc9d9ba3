"""Real servers for all tests: one Valkey and one PostgreSQL per test process, with a new database and a new queue for
each test."""

import asyncio
import gc
import os
import secrets
import signal
from collections.abc import Iterator

import databases
import memory
import pytest
import structlog
from hypothesis import HealthCheck, settings
from servers import kinds
from servers.selection import selected
from shipped import as_account, redis_users
from support import Cli, closing_cli

from ingest.lab.servers import EmbeddedServers, embedded_servers
from ingest.store.partitioning.partitioning import set_partitions

# A shell may start background jobs with SIGINT ignored, and commands that tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# So may `nohup` ignore SIGHUP. A handler, which those commands do not inherit, protects this process as well.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
# Cached bytecode spares each of those commands from compiling this project.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# By default a traceback is drawn with the values of all variables, which takes up to a second.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)
_FILES_IN_MEMORY = memory.use_for_temporary_files()

_PARTITIONED = "template_partitioned"

settings.register_profile(
    "ingest", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
# For `make unit`, which is run often.
settings.register_profile("quick", settings.get_profile("ingest"), max_examples=10)
settings.load_profile("ingest")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start long tests first, so that all test processes finish at about the same time."""
    items[:] = selected(items)
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Exclude objects that last for the whole run, such as tests and their imports, from garbage collection."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    if _FILES_IN_MEMORY is not None:
        memory.remove(_FILES_IN_MEMORY)


def pytest_report_header() -> str:
    return f"Redis: {kinds.summary()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if kinds.MISSING:  # `-q` shows no header
        terminalreporter.write_line(f"Redis: {kinds.summary()}", yellow=True)


@pytest.fixture(scope="session")
def servers() -> Iterator[EmbeddedServers]:
    with embedded_servers(valkey_options=redis_users(knows_setinfo=True)) as running:
        asyncio.run(databases.prepare(running.postgres_dsn))
        yield running


@pytest.fixture(scope="session")
def own_servers() -> Iterator[EmbeddedServers]:
    """Servers that a test may stop or kill without losing confirmed writes."""
    with embedded_servers(
        durable=True, valkey_options={"appendfsync": "always", **redis_users(knows_setinfo=True)}
    ) as running:
        asyncio.run(databases.prepare(running.postgres_dsn))
        yield running


@pytest.fixture
def redis_url(servers: EmbeddedServers) -> str:
    return as_account(servers.redis_url, "ingest")


@pytest.fixture
def queue_name() -> str:
    """A queue of this test's own."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def empty_dsn(servers: EmbeddedServers) -> Iterator[str]:
    """A new database without our tables, whose owner may create them."""
    for dsn in _database(servers, databases.WITH_ROLES):
        yield as_account(dsn, "ingest_owner")


@pytest.fixture
def dsn(servers: EmbeddedServers) -> Iterator[str]:
    """A new database with our tables, for the role of workers."""
    yield from _database(servers, databases.MIGRATED)


@pytest.fixture(scope="session")
def partitioned_template(servers: EmbeddedServers) -> str:
    created = asyncio.run(databases.create(servers.postgres_dsn, _PARTITIONED))
    asyncio.run(set_partitions(as_account(created, "ingest_owner"), 4))
    return _PARTITIONED


@pytest.fixture(params=["plain", "partitioned"])
def either_dsn(request: pytest.FixtureRequest, servers: EmbeddedServers) -> Iterator[str]:
    """A new database with each form of the table of orders."""
    yield from _database(
        servers, databases.MIGRATED if request.param == "plain" else request.getfixturevalue("partitioned_template")
    )


def _database(servers: EmbeddedServers, template: str) -> Iterator[str]:
    with asyncio.Runner() as runner:
        database = databases.database(servers.postgres_dsn, template)
        yield runner.run(database.__aenter__())
        runner.run(database.__aexit__(None, None, None))


@pytest.fixture
def env(redis_url: str, dsn: str, queue_name: str) -> dict[str, str]:
    """The environment of the real commands, with these servers and this test's database and queue."""
    # Neither settings nor the terminal's width are inherited.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("INGEST_", "COLUMNS"))}
    return {
        **inherited,
        "INGEST_REDIS_URL": redis_url,
        "INGEST_POSTGRES_DSN": dsn,
        "INGEST_STREAM": queue_name,
        "INGEST_METRICS_PORT": "0",
        "INGEST_RELAY_METRICS_PORT": "0",
        "INGEST_LOG_FORMAT": "json",
    }


@pytest.fixture
def cli(env: dict[str, str]) -> Iterator[Cli]:
    with closing_cli(env) as running:
        yield running

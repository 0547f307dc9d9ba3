"""The denied actions of the service's accounts in Redis and PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import pytest
from redis.exceptions import ResponseError

if TYPE_CHECKING:
    from deploy.project import Project

# A script gets a different message, and DEBUG is disabled for all users.
_REFUSED = "has no permissions|No permissions to access a key|DEBUG command not allowed"


@pytest.mark.parametrize(
    "command",
    [
        "FLUSHALL",
        "FLUSHDB",
        "CONFIG GET maxmemory",
        "KEYS *",
        "SCAN 0",
        "GET another-key",
        "XADD ingest:{invoices}:stream * order_id 1",
        "DEL ingest:{orders}:stream",
        "XGROUP DESTROY ingest:{orders}:stream ingest",
        "DEBUG SLEEP 0",
        "SHUTDOWN NOSAVE",
        "ACL LIST",
        "MONITOR",
        "EVAL return(redis.call('FLUSHALL')) 0",
    ],
)
def test_redis_refuses_the_service_what_it_does_not_need(system: Project, command: str) -> None:
    with system.redis("ingest") as redis, pytest.raises(ResponseError, match=_REFUSED):
        redis.execute_command(*command.split())


@pytest.mark.parametrize(
    "command",
    [
        "FLUSHALL",
        "CONFIG GET maxmemory",
        "KEYS *",
        "GET another-key",
        "DEL ingest:{orders}:stream",
        "XREADGROUP GROUP ingest x STREAMS ingest:{orders}:stream >",
        "XACK ingest:{orders}:stream ingest 1-1",
        "XGROUP DESTROY ingest:{orders}:stream ingest",
        "XTRIM ingest:{orders}:stream MAXLEN 0",
        "EVAL return(redis.call('FLUSHALL')) 0",
    ],
)
def test_redis_refuses_the_api_what_it_does_not_need(system: Project, command: str) -> None:
    with system.redis("ingest-api") as redis, pytest.raises(ResponseError, match=_REFUSED):
        redis.execute_command(*command.split())


def test_redis_has_no_user_without_a_password(system: Project) -> None:
    done = system.attempt("exec", "--no-TTY", "redis", "redis-cli", "ping")

    assert "NOAUTH" in done.out + done.err


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE orders",
        "ALTER TABLE orders ADD COLUMN more text",
        "TRUNCATE orders",
        "DELETE FROM orders",
        "UPDATE erased_orders SET erased_at = now()",
        "UPDATE schema_migrations SET version = 0",
        "CREATE TABLE more (id int)",
        "CREATE SCHEMA more",
        "CREATE TEMPORARY TABLE more (id int)",
        "CREATE ROLE more",
        "COPY orders TO PROGRAM 'cat'",
        "SELECT pg_read_file('/etc/passwd')",
    ],
)
def test_postgres_refuses_the_workers_what_they_do_not_need(system: Project, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        system.query(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE orders",
        "TRUNCATE orders",
        "UPDATE orders SET status = 'paid'",
        "INSERT INTO orders (order_id) VALUES ('1')",
        "DELETE FROM erased_orders",
        "UPDATE audit_log SET actor = 'nobody'",
        "DELETE FROM audit_log",
        "UPDATE schema_migrations SET version = 0",
        "CREATE TABLE more (id int)",
        "CREATE TEMPORARY TABLE more (id int)",
        "COPY orders TO PROGRAM 'cat'",
    ],
)
def test_postgres_refuses_the_api_what_it_does_not_need(system: Project, statement: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        system.query(statement, role="ingest_api")


def test_postgres_wants_a_password_from_the_network(system: Project) -> None:
    done = system.attempt(
        "exec", "--no-TTY", "postgres", "psql", "-h", "postgres", "-U", "ingest", "-w", "-c", "SELECT 1"
    )

    assert "no password supplied" in done.err


def test_only_what_was_tried_here_was_refused(system: Project) -> None:
    """Reset the log, so that later denials belong to the service."""
    refused = {entry["object"] for entry in system.refused_commands()}

    with system.redis() as redis:
        redis.acl_log_reset()

    assert refused >= {"flushall", "keys", "another-key"}

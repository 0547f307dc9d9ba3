"""The roles of the deployment may do no more than their processes need, on a real server."""

from uuid import uuid4

import asyncpg
import pytest
from shipped import as_account, as_api
from support import connected, logged_in, with_database

from ingest.domain.operating.audited_operation import AuditFilter, OperationState
from ingest.store.audit import AuditLog, Phase
from ingest.store.audit_reading import audited_operations
from ingest.store.connections.pool import Pool

REQUEST = ["kind = 'backfill'", "source = 'x'", "requested_by = 'x'", "requested_at = now()", "selection = '{}'"]
REQUEST += ["total = 1", "rate = 1", "since = now()", "until = now()", "dry_run = true"]
CHANGE, VALUES = "operation, phase, actor, action, selection", "gen_random_uuid(), 'done', 'cli:x', 'pause', '{}'"
OF_ANY_ROLE = [
    *(f"UPDATE jobs SET {change}" for change in REQUEST),
    "INSERT INTO jobs (kind, source, selection, requested_by, state) VALUES ('orders.enqueue', '', '{}', 'cli:x', 'done')",
    "INSERT INTO jobs (kind, source, selection, requested_by, requested_at) VALUES ('orders.enqueue', '', '{}', 'cli:x', now())",
    "DELETE FROM jobs",
    f"INSERT INTO audit_log ({CHANGE}, role) VALUES ({VALUES}, 'other')",
    f"INSERT INTO audit_log ({CHANGE}, at) VALUES ({VALUES}, '2020-01-01')",
    "SELECT lo_create(0)",
    "SELECT lo_creat(-1)",
    "SELECT lo_from_bytea(0, 'x')",
    "CREATE TABLE more ()",
    "CREATE TEMP TABLE more ()",
]
OF_THE_API = ["UPDATE jobs SET listed = 1", "UPDATE jobs SET next_page = 'x'"]


@pytest.fixture(params=["ingest", "ingest_api"])
def role_dsn(request: pytest.FixtureRequest, dsn: str) -> str:
    return dsn if request.param == "ingest" else as_api(dsn)


@pytest.mark.parametrize("statement", OF_ANY_ROLE)
async def test_no_role_can_change_a_request_its_record_or_the_database(role_dsn: str, statement: str) -> None:
    async with logged_in(role_dsn) as sql:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await sql.execute(statement)


@pytest.mark.parametrize("statement", OF_THE_API)
async def test_the_role_of_the_api_cannot_record_the_progress_of_backfills(dsn: str, statement: str) -> None:
    async with logged_in(as_api(dsn)) as sql:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await sql.execute(statement)


@pytest.mark.parametrize("database", ["postgres", "template1"])
async def test_no_role_can_connect_to_another_database(role_dsn: str, database: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for database"):
        await asyncpg.connect(with_database(role_dsn, database))


OF_KEYS = ["shop", "proxy:anna", "anonymous", "CLI:root", ""]
RECORD = f"INSERT INTO audit_log ({CHANGE}, source) VALUES (gen_random_uuid(), 'begun', $1, $2, $3::text::jsonb, 'de')"
REQUEST_JOB = (
    "INSERT INTO jobs (kind, source, selection, requested_by) VALUES ('orders.remap', 'de', '{\"ids\": [\"a\"]}', $1)"
    " RETURNING id"
)


@pytest.mark.parametrize("actor", OF_KEYS)
async def test_the_role_of_workers_cannot_act_under_the_name_of_an_api_key(dsn: str, actor: str) -> None:
    async with logged_in(dsn) as worker:
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for table audit_log"):
            await worker.execute(RECORD, actor, "pause", "{}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for table audit_log"):
            await worker.fetchval(REQUEST_JOB, actor)


async def test_the_role_of_workers_acts_under_the_names_of_its_users_and_of_jobs_that_it_runs(dsn: str) -> None:
    async with logged_in(as_api(dsn)) as api, logged_in(dsn) as worker:
        job = await api.fetchval(REQUEST_JOB, "shop")
        of_a_user = await worker.fetchval(REQUEST_JOB, "cli:root")
        await worker.execute(RECORD, "cli:root", "pause", "{}")
        await worker.execute(RECORD, "shop", "orders.remap", f'{{"job": {job}, "ids": ["a"]}}')

        for actor, action, selection in [
            ("other", "orders.remap", f'{{"job": {job}, "ids": ["a"]}}'),
            ("shop", "orders.erase", f'{{"job": {job}, "ids": ["a"]}}'),
            ("shop", "orders.remap", f'{{"job": {job}, "ids": ["b"]}}'),
            ("shop", "orders.remap", f'{{"job": "{job}", "ids": ["a"]}}'),
            ("shop", "orders.remap", f'{{"job": {of_a_user}, "ids": ["a"]}}'),
        ]:
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for table audit_log"):
                await worker.execute(RECORD, actor, action, selection)


@pytest.mark.parametrize("account", ["ingest_api", "ingest_owner"])
@pytest.mark.parametrize("actor", [*OF_KEYS, "cli:root"])
async def test_the_http_api_and_a_single_account_act_under_every_name(dsn: str, account: str, actor: str) -> None:
    async with logged_in(as_account(dsn, account)) as sql:
        await sql.execute(RECORD, actor, "pause", "{}")
        assert await sql.fetchval(REQUEST_JOB, actor) > 0


async def test_a_temporary_table_gives_no_right_to_a_name(dsn: str) -> None:
    async with connected(dsn) as admin:
        await admin.execute("GRANT TEMP ON DATABASE " + dsn.rpartition("/")[2] + " TO ingest")
    async with logged_in(dsn) as worker:
        await worker.execute("CREATE TEMP TABLE audit_log (); CREATE TEMP TABLE jobs (LIKE public.jobs)")
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for table audit_log"):
            await worker.execute(RECORD.replace("audit_log", "public.audit_log"), "shop", "pause", "{}")


async def test_the_audit_log_contains_the_role_that_has_recorded_a_change(dsn: str) -> None:
    operation = uuid4()
    async with Pool.open(dsn, size=1) as of_workers, Pool.open(as_api(dsn), size=1) as of_the_api:
        await AuditLog(of_the_api).add(operation, Phase.BEGUN, "cli:root", "pause", {}, None)
        await AuditLog(of_workers).add(operation, Phase.DONE, "cli:root", "pause", {}, 7)
        found = await audited_operations(of_the_api, AuditFilter(), 10)

    async with connected(dsn) as sql:
        roles = await sql.fetch("SELECT DISTINCT role FROM audit_log ORDER BY role")
    assert [role for (role,) in roles] == ["ingest", "ingest_api"]
    # The role of workers cannot report the end of a change that the HTTP API has begun.
    assert [(each.role, each.state, each.count) for each in found] == [
        ("ingest", OperationState.DONE, 7),
        ("ingest_api", OperationState.UNFINISHED, None),
    ]

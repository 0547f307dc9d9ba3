"""The accounts that deploy/ ships, on the servers of tests: the roles of roles.sh and the users of users.acl.

Every URL of a server leads to the same password for all of its shipped accounts, so that `as_account` only changes the name. The
service uses `ingest`, and `ingest_api` or `ingest-api` for the HTTP API. Tests inspect and plant as the administrator.
"""

import hashlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from ingest.lab.servers.postgres import installed_programs

DEPLOY = Path(__file__).parents[1] / "deploy"
USERS = DEPLOY / "redis" / "users.acl"
ROLES = DEPLOY / "postgres" / "roles.sh"
PASSWORD_FILES = {
    "ingest_owner": "postgres_owner_password",
    "ingest": "postgres_password",
    "ingest_api": "postgres_api_password",
}
# The administrator of each kind of server.
_ADMINS = {"postgresql": "postgres", "redis": "admin"}
# The shipped account with the same job on the other kind of server has the other separator in its name.
_SHIPPED = {"postgresql": {"postgres", *PASSWORD_FILES}, "redis": {"admin", "ingest", "ingest-api", "ingest-producer"}}
# Passwords of the users of Redis. PostgreSQL's roles have the password of the server's superuser.
REDIS_PASSWORD = "s3cr3t-of-tests"
# Queues of tests, in the place of `orders`, for which users.acl is written.
_QUEUES = "test-*"
# Commands that Redis before 7.2 does not support.
_SINCE_7_2 = {"+client|setinfo", "+waitaof"}


def _kind(url: str) -> str:
    return "postgresql" if url.startswith("postgres") else "redis"


def as_account(url: str, name: str) -> str:
    """The URL of the same server for another account that deploy/ ships."""
    parts = urlsplit(url)
    account, _, hosts = parts.netloc.rpartition("@")
    password = quote(REDIS_PASSWORD) if _kind(url) == "redis" else account.partition(":")[2]
    return urlunsplit(parts._replace(netloc=f"{name}:{password}@{hosts}"))


def as_admin(url: str) -> str:
    """The URL with which tests inspect and plant. A URL with an account of the test's own stays."""
    return as_account(url, _ADMINS[_kind(url)]) if _user(url) in _SHIPPED[_kind(url)] else url


def as_api(url: str) -> str:
    """The URL for the HTTP API. A URL with an account other than the worker's stays."""
    return (
        as_account(url, "ingest_api" if _kind(url) == "postgresql" else "ingest-api") if _user(url) == "ingest" else url
    )


def _user(url: str) -> str:
    return unquote(urlsplit(url).netloc.rpartition("@")[0].partition(":")[0])


def rules_of(user: str, password: str, *, knows_setinfo: bool = True) -> list[str]:
    """A user's rules in users.acl, its lines joined and its password's hash put in, as start.sh does."""
    lines = [line for line in USERS.read_text(encoding="utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    [rules] = re.findall(rf"^user {user} (.*)$", joined, re.MULTILINE)
    hashed = re.sub(r"@\w+_PASSWORD@", hashlib.sha256(password.encode()).hexdigest(), rules).split()
    return [rule for rule in hashed if rule not in _SINCE_7_2 or knows_setinfo]


@cache
def redis_users(*, knows_setinfo: bool) -> Mapping[str, str]:
    """The lines of a configuration that create the shipped users for the queues of tests."""
    return {
        f"user {user}": " ".join(rules_of(user, REDIS_PASSWORD, knows_setinfo=knows_setinfo)).replace(
            "{orders", f"{{{_QUEUES}"
        )
        for user in sorted(_SHIPPED["redis"])
    }


def create_roles(dsn: str) -> None:
    """Run roles.sh in a database, as the superuser of the DSN, whose password the roles get."""
    parts = urlsplit(dsn)
    with TemporaryDirectory(prefix="ingest-") as secrets:
        for file in PASSWORD_FILES.values():
            (Path(secrets) / file).write_text(unquote(parts.password or ""))
        env = {
            **os.environ,
            "PATH": f"{installed_programs()}{os.pathsep}{os.environ['PATH']}",
            "PGHOST": parts.hostname or "",
            "PGPORT": str(parts.port),
            "PGPASSWORD": unquote(parts.password or ""),
            "POSTGRES_USER": unquote(parts.username or ""),
            "POSTGRES_DB": parts.path.removeprefix("/"),
            "SECRETS": secrets,
        }
        done = subprocess.run(["sh", ROLES], env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def account_of(program: Sequence[str]) -> Mapping[str, str]:
    """The names of the accounts with which a deployment runs a command, by the setting of their URL."""
    words = [word for word in program if not word.startswith("-")]
    if words[:1] == ["migrate"]:
        return {"INGEST_POSTGRES_DSN": "ingest_owner"}
    if words[:1] in (["api"], ["audit"]) or words[:2] == ["order", "erase"]:
        return {"INGEST_POSTGRES_DSN": "ingest_api", "INGEST_REDIS_URL": "ingest-api"}
    return {}


def environment_of(program: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command, in which the accounts of the worker are replaced by those of the command."""
    replaced = {
        name: as_account(environment[name], account)
        for name, account in account_of(program).items()
        if _user(environment.get(name, "")) == "ingest"
    }
    return {**environment, **replaced}

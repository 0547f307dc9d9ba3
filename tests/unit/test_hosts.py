"""A DSN with several hosts becomes one DSN for each."""

import pytest

from ingest.store.connections.hosts import single_hosts

SEVERAL = [
    (
        "postgresql://u:p@h1:1,h2/db?sslmode=require",
        ["postgresql://u:p@h1:1/db?sslmode=require", "postgresql://u:p@h2/db?sslmode=require"],
    ),
    ("postgresql://[::1]:1,[::2]:2/db", ["postgresql://[::1]:1/db", "postgresql://[::2]:2/db"]),
    (
        "postgresql://u:p@/db?host=h1,h2&port=1,2",
        ["postgresql://u:p@/db?host=h1&port=1", "postgresql://u:p@/db?host=h2&port=2"],
    ),
    (
        "postgresql://u@/db?port=7&host=h1,h2",
        ["postgresql://u@/db?host=h1&port=7", "postgresql://u@/db?host=h2&port=7"],
    ),
    (
        "postgresql://u@/db?host=h1,h2&application_name=a b",
        ["postgresql://u@/db?host=h1&application_name=a%20b", "postgresql://u@/db?host=h2&application_name=a%20b"],
    ),
]
ONE = [
    "postgresql://u:p@h/db",
    "postgresql://u@/db?host=/run/postgresql",
    "postgresql://u@/db?host=h1,h2&port=1,2,3",
    "postgresql://u@/db",
]


@pytest.mark.parametrize(("dsn", "expected"), SEVERAL)
def test_each_host_gets_a_dsn_of_its_own(dsn: str, expected: list[str]) -> None:
    assert [single for _, single in single_hosts(dsn)] == expected


@pytest.mark.parametrize("dsn", ONE)
def test_any_other_dsn_stays_as_it_is(dsn: str) -> None:
    assert [single for _, single in single_hosts(dsn)] == [dsn]

"""For the benchmarks, which create and empty the tables and queues that they measure: the administrators' accounts."""

import pytest
from shipped import as_admin


@pytest.fixture
def redis_url(redis_url: str) -> str:
    return as_admin(redis_url)


@pytest.fixture
def dsn(dsn: str) -> str:
    return as_admin(dsn)

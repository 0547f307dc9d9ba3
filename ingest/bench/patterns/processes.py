"""Pattern 3: a pool of processes with blocking calls.

Each process waits for one response and has its own interpreter in memory, so that eight processes have eight orders in
flight. If one of them dies, the pool abandons all orders (`BrokenProcessPool`).
"""

from concurrent.futures import ProcessPoolExecutor
from functools import cache

import psycopg
import requests

from ingest.bench.patterns.job import INSERT_PSYCOPG, TIMEOUT, log_failure, order_ids, postgres_dsn, row_of, url_of

PROCESSES = 8
CHUNK = 5  # orders in one message to a process


@cache
def session() -> requests.Session:
    """This process's connections to the API."""
    return requests.Session()


@cache
def database() -> psycopg.Connection:
    """This process's connection to PostgreSQL."""
    return psycopg.connect(postgres_dsn(), autocommit=True)


def process(order_id: str) -> None:
    """Fetch and store one order."""
    try:
        response = session().get(url_of(order_id), timeout=TIMEOUT)
        response.raise_for_status()
        database().execute(INSERT_PSYCOPG, row_of(response.content, order_id))
    except requests.RequestException as error:
        log_failure(order_id, error)


def main() -> None:
    """Fetch and store all orders."""
    with ProcessPoolExecutor(PROCESSES) as pool:
        for _ in pool.map(process, order_ids(), chunksize=CHUNK):
            pass  # raises the exception of a process


if __name__ == "__main__":
    main()

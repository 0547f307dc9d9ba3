"""Pattern 4: a hundred threads and a queue in memory.

Each thread waits for one response, and all threads share one interpreter. The remaining orders exist only in this
process.
"""

from queue import Empty, Queue
from threading import Thread

import requests
from psycopg_pool import ConnectionPool

from ingest.bench.patterns.job import INSERT_PSYCOPG, TIMEOUT, log_failure, order_ids, postgres_dsn, row_of, url_of

THREADS = 100
CONNECTIONS = 10


def work(todo: Queue[str], pool: ConnectionPool) -> None:
    """Fetch and store orders until the queue is empty."""
    with requests.Session() as session:
        while True:
            try:
                order_id = todo.get_nowait()
            except Empty:
                return
            try:
                response = session.get(url_of(order_id), timeout=TIMEOUT)
                response.raise_for_status()
                row = row_of(response.content, order_id)
                with pool.connection() as database:
                    database.execute(INSERT_PSYCOPG, row)
            except requests.RequestException as error:
                log_failure(order_id, error)


def main() -> None:
    """Fetch and store all orders."""
    todo: Queue[str] = Queue()
    for order_id in order_ids():
        todo.put(order_id)
    with ConnectionPool(postgres_dsn(), min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        threads = [Thread(target=work, args=(todo, pool)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()

"""An outage is logged when it begins and ends. A denied right is logged once, because only an operator ends it."""

import pytest
from structlog.testing import capture_logs

from ingest.domain.errors import Unavailable
from ingest.flow.availability import AvailabilityLog
from ingest.queue.redis.connection import QueueDenied
from ingest.store.connections.translation import StoreDenied


@pytest.mark.parametrize("denied", [StoreDenied("no right to orders"), QueueDenied("no right to xack")], ids=str)
def test_a_denied_right_is_logged_once_as_an_error_and_when_it_is_granted(denied: Unavailable) -> None:
    log = AvailabilityLog("a server")

    with capture_logs() as logs:
        for _ in range(3):
            log.failed(denied)
        log.succeeded()
        log.succeeded()
        log.failed(denied)

    assert [(each["event"], each["log_level"]) for each in logs] == [
        ("access_denied", "error"),
        ("access_granted", "info"),
        ("access_denied", "error"),
    ]
    assert logs[0]["error"] == str(denied)

"""Which caller the log names when a resource of the HTTP API has run out."""

from collections import Counter

from structlog.testing import capture_logs

from ingest.api.http.shortage import Shortage


def test_a_key_is_named_although_the_rush_began_with_unknown_callers() -> None:
    shortage = Shortage("connections")

    with capture_logs() as log:
        shortage.note("rejected", Counter())
        for _ in range(3):
            shortage.note("rejected", Counter({"greedy": 50, "": 40}))

    assert [(each["holder"], each["held"]) for each in log] == [("callers without a key", 0), ("greedy", 50)]

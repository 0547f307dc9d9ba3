"""Reports that a resource of all callers has run out, and which caller holds the most."""

from collections import Counter

from ingest.api.http.log_limit import LogLimit
from ingest.telemetry.logs import get_logger

_log = get_logger("api")
# Seconds between two log lines.
_LOG_EVERY = 10.0
_UNKNOWN = "callers without a key"


class Shortage:
    """Counts the requests that were ended or rejected because one resource is short, and logs them at most every ten seconds for each holder.

    Args:
        resource: Its name, for the log.
    """

    def __init__(self, resource: str) -> None:
        self._resource = resource
        self._counts: Counter[str] = Counter()
        self._limit = LogLimit(_LOG_EVERY)

    def note(self, result: str, held: Counter[str]) -> None:
        """A request was `ended` or `rejected`. `held` contains the share of each caller, by name."""
        self._counts[result] += 1
        ((holder, most),) = held.most_common(1) or [("", 0)]
        # In a rush, the callers are unknown at first. Their line does not delay the line with the key.
        if self._limit.is_due(holder):
            ended, rejected = self._counts["ended"], self._counts["rejected"]
            _log.warning(
                "api_full",
                resource=self._resource,
                ended=ended,
                rejected=rejected,
                holder=holder or _UNKNOWN,
                held=most,
            )
            self._counts.clear()

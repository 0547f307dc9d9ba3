"""Reads W3C trace contexts, in the form of the header `traceparent`: https://www.w3.org/TR/trace-context/."""

_SAMPLED = frozenset("13579bdf")


def is_sampled(traceparent: str) -> bool:
    """Return whether spans of this trace are recorded. The context has to be valid, see `is_traceparent`."""
    return traceparent[-1] in _SAMPLED


def log_fields_of(traceparent: str | None) -> dict[str, str]:
    """Return the fields by which a log line belongs to a trace, or none without a context."""
    return {} if traceparent is None else {"trace_id": traceparent[3:35], "span_id": traceparent[36:52]}

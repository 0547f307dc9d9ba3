"""The trace of a program that enqueues orders by the Python API, and uses OpenTelemetry itself."""

import sys


def program_context() -> str | None:
    """Return the context of the current span of a program that uses OpenTelemetry, if it is sampled."""
    api = sys.modules.get("opentelemetry.trace")
    if api is None:
        return None
    context = api.get_current_span().get_span_context()
    if not (context.is_valid and context.trace_flags.sampled):
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

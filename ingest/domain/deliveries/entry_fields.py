"""The fields of a stream entry. Each is declared here, once for Python and for the Lua scripts."""

# Written by a producer. Only the order ID is required.
ORDER_ID = b"order_id"
DOCUMENT = b"document"
TRACEPARENT = b"traceparent"
ORIGIN = b"origin"
# What earlier releases call the origin.
FORMER_ORIGIN = b"source"
# When a document was accepted, in microseconds by the queue's clock, given by the script that adds it.
PUSHED_AT = b"pushed_at"
# When the event of a document happened, in microseconds by the clock of its sender.
EVENT_AT = b"event_at"
# The version that the external API has already shown in a webhook or a list, in microseconds. 0 if it has only shown that the order exists.
EXPECTED_VERSION = b"expected_version"

# Written each time an entry moves.
ENQUEUED_AT = b"enqueued_at"
ATTEMPT = b"attempt"
# The group that an entry is meant for when the stream has several and the others have finished it, as after a retry or a replay.
GROUP = b"ingest_group"
REPLAYS = b"replays"
REPLAYED_AT = b"replayed_at"

# The reason of the last retry.
RETRY_REASON = b"retry_reason"
RETRY_ERROR = b"retry_error"

# Written when an order is dead-lettered.
REASON = b"reason"
ERROR = b"error"
ATTEMPTS = b"attempts"
FIRST_ENQUEUED_AT = b"first_enqueued_at"
WORKER = b"worker"
DEAD_AT = b"dead_at"
# Equal for dead letters of an order with the same reason and content.
SEEN_KEY = b"ingest_seen_key"
# How often, and when last (ms), the order became this dead letter. They are kept in a hash, and added when the dead letter is read.
SEEN = b"ingest_seen"
LAST_SEEN_AT = b"ingest_last_seen_at"
# The queue and the ID of a dead letter in its first partition. It identifies the dead letter in all partitions to which it moves.
MOVED_FROM = b"ingest_moved_from"

# The other fields of an entry with more than a Lua script can pass on: a MessagePack array of names and values.
PACKED = b"ingest_packed"

OF_RETRIES = frozenset((RETRY_REASON, RETRY_ERROR))
OF_DEAD_LETTERS = frozenset(
    (REASON, ERROR, ATTEMPTS, FIRST_ENQUEUED_AT, WORKER, DEAD_AT, SEEN_KEY, SEEN, LAST_SEEN_AT, MOVED_FROM)
)
OF_MOVES = frozenset((ENQUEUED_AT, ATTEMPT, GROUP, REPLAYS, REPLAYED_AT))
KNOWN = (
    OF_RETRIES
    | OF_DEAD_LETTERS
    | OF_MOVES
    | {ORDER_ID, DOCUMENT, TRACEPARENT, ORIGIN, FORMER_ORIGIN, PUSHED_AT, EVENT_AT, EXPECTED_VERSION}
)
# Shown in lists. A document may be large.
LISTED = KNOWN - {DOCUMENT, TRACEPARENT, PUSHED_AT, EVENT_AT, EXPECTED_VERSION, GROUP, SEEN_KEY, MOVED_FROM}

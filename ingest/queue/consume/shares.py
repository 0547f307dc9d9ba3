"""How the room for entries is divided among partitions."""

from collections.abc import Sequence

from ingest.queue.consume.partition.partition import Partition

Share = tuple[Partition, int]
"""A partition, and how many entries it may give."""


def divide(room: int, partitions: Sequence[Partition]) -> list[Share]:
    """Divide room among partitions, among the first ones if it is smaller than their number."""
    asked = partitions[:room]
    if not asked:
        return []
    least, rest = divmod(room, len(asked))
    return [(partition, least + (place < rest)) for place, partition in enumerate(asked)]

"""The partitions of a queue, as recorded in Redis."""

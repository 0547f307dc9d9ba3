"""One consumer of all partitions of a queue, made of a consumer of each."""

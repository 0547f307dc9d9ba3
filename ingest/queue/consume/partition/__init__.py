"""The consumer of one partition of a queue: reads, settles, reports that it is alive, and maintains the group there."""

"""A consumer of the group: reads, settles, reports that it is alive, and maintains the group."""

"""Moves the rows of an outbox to the queues of their sources.

Read in this order: `rows` (enqueues the rows of one source), `source_queues` (all sources, and which of their queues are full), `relay`
(the loop).
"""

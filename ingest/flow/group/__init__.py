"""The part that a process takes in the consumer group: heartbeats, leases, shared maintenance."""

"""Shows the state of queues, workers, sources and servers. Changes nothing."""

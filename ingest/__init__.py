"""Order ingestion on Redis Streams consumer groups."""

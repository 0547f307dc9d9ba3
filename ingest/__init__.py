"""Order ingestion on Redis Streams consumer groups."""

from importlib.metadata import version

__version__ = version("order-ingest")

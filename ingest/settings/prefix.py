"""What the name of every setting begins with."""

PREFIX = "INGEST_"

"""The keys in Redis, and the fields of an entry."""

"""PostgreSQL: the only room that knows SQL."""

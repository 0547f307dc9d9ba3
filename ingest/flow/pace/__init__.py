"""How many requests may be in flight, and when the next one may begin."""

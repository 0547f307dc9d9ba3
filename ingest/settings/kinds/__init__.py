"""The kinds of sources: shops whose APIs are known."""

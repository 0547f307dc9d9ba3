"""The sources of order IDs that commands read."""

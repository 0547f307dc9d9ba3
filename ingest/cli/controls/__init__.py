"""Commands that control running workers: pauses, drains, changed limits and log levels."""

"""Commands that show the queues, and change their dead letters and retries."""

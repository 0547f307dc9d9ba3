"""The pages about dead letters and retries."""

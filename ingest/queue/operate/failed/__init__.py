"""Dead letters and retries, as operators see and change them."""

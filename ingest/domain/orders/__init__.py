"""Orders: documents, rows, states and comparisons."""

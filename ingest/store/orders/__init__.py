"""The table of orders."""

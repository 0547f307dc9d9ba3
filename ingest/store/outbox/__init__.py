"""The outbox, a table of orders to enqueue in the database of another program."""

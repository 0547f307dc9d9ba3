"""Commands that enqueue, find, erase, compare and map orders."""

"""The outbox, a table in the database of a program that announces orders."""

"""Runs jobs in worker processes and in processes of the HTTP API."""

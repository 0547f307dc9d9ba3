"""The limits of the simulated API."""

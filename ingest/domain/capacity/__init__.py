"""Plans the capacity of a deployment."""

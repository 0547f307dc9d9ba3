"""The quota of the external API, shared by all processes."""

"""The lists of orders of an external API."""

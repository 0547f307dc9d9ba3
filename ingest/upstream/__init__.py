"""The external API: asks it for orders, and says what its answers mean."""

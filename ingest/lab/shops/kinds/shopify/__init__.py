"""The two APIs of Shopify: the GraphQL Admin API, and the legacy REST Admin API."""

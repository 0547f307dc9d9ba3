"""A source as configured: its endpoint, quota, mapping and transform."""

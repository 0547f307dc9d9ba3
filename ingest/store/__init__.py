"""PostgreSQL access. No other package contains SQL."""

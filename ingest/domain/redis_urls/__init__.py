"""The URLs of a Redis Cluster and of Sentinels, and the addresses in them."""

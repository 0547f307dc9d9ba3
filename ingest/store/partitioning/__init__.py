"""The division of the table of orders into partitions."""

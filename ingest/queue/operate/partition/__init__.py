"""Lists, searches and changes one partition of a queue for operators."""

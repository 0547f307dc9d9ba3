"""Lists, searches and changes the queue for operators."""

"""Lists, searches and changes a queue for operators, over all its partitions.

With one partition, each class sends the commands of the class for one queue.
"""

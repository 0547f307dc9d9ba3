"""Published examples of responses, each file with its source and licence, and the row that the documentation implies.

A file contains `members` that only tables of the documentation describe, `undocumented` members that only a simulated shop
sends, `other_types` that it sends in addition, and `absent` members that it does not send.
"""

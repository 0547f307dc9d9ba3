"""Responses as the public documentation of shops shows them: requests, members and types, each file with its source.

A file contains `members` with the JSON types of each, `undocumented` members that only a simulated shop sends,
`other_types` that it sends in addition, and `absent` members that it does not send.
"""

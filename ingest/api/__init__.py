"""HTTP: orders, webhooks and operations. Parses requests, calls operations and the queue, writes answers; decides nothing else.

Data: connection -> `server` (limits, access, problems) -> a route's handler -> queue or operations -> answer.
"""

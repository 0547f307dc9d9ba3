"""The HTTP API for orders, webhooks and operations. It parses requests, calls operations and the queue, and writes responses.

Data: connection -> `server` (limits, access, problems) -> a route's handler -> queue or operations -> response.
"""

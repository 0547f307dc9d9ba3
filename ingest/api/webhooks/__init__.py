"""Webhooks, the signed requests of shops and other services.

Read in this order: `declaration` (the file of webhooks), `profiles` (the known senders), `places` (the place of a value in a request),
`schemes` (the claim of a request), `keys` and `secret_files` (who can have signed it), `webhook` (one webhook, compiled), `load` (the file,
with the line of every error), `reception` (classifies a request), `routes` (HTTP).

Data: raw body and headers -> signature checked -> event, order ID, document -> queue -> response. No part of a body is parsed before
its signature has been checked.
"""

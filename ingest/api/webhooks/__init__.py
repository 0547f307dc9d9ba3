"""Webhooks: signed announcements of shops and other services.

Read in this order: `declaration` (what the file of sources may say), `profiles` (what is known of each kind of sender), `places`
(where in a request a value is), `schemes` (what a request claims), `keys` and `secret_files` (who can have signed it), `sources`
(one source, compiled), `load` (the file, with the line of every error), `reception` (decides what a request is), `routes` (HTTP).

Data: raw body and headers -> signature checked -> event, order ID, document -> queue -> answer. Nothing of a body is parsed before
its signature has been checked.
"""

"""From somebody's JSON to our order.

Read in this order: `declaration` (what a mapping file may say), `paths`, `conversions`, `fields` (each compiled to a
closure of `reads`), `lines`, `parts`, `compiled` (the mapping of a whole order), `load` (files and ready-made mappings, with the line of
every error).

All that is pure: a document and the ID that was requested go in, an order or `InvalidDocument` comes out.

Then a user's own function may change it: `transform` wraps the decoding of documents; `functions` loads the function, and checks what
it returns; `process_pool` runs it in processes beside the event loop, each of which `child` starts and `transform_process` is.
"""

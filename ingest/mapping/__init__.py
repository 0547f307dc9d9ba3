"""Maps JSON documents of an external API to orders.

Read `compiled` in this order: `declaration` (the keys of a mapping file), `paths`, `conversions`, `timestamps`, `fields` (each
compiled to a closure), `lines`, `remainders` and `totals` (the comparison with the document's own total), and `mapping` (a whole order). Then read `parts` and `load` (files and ready-made mappings, with the line of every
error). All of these are pure: they take a document and the requested ID, and return an order or raise `InvalidDocument`.

A user's function may then change the order. In `transforms`, `transform` wraps the decoding of documents. `functions` loads the function
and checks its result. `process_pool` runs it in separate processes: `child` starts each of them, and `transform_process` is its program.
"""

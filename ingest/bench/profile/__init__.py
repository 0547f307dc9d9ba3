"""`ingest bench profile`: the CPU time of each stage of a delivery.

Read in this order: `compare` (the run and its table), `contender` (the service with a sampler in its worker processes),
`injected` (the sampler), `samples` (reads its files) and `delivery_stages` (the functions of each stage).
"""

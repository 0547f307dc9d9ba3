"""`ingest bench profile`: where the CPU time of a delivery goes, stage by stage.

Read in this order: `compare` (the run and its table), `contender` (the service with a sampler in its worker processes), `injected`
(the sampler), `samples` (what it has written), `delivery_stages` (which part of the code is which stage).
"""

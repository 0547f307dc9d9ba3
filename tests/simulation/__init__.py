"""Real workers in virtual time, on ports in memory, with everything that can go wrong between and around them.

`story` draws what happens from a seed, `network` is the way of calls, `world` performs a story and checks its end.
"""

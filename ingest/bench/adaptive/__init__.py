"""`ingest bench adaptive`: how close adaptive limits come to the optimum, in virtual time and with real workers.

`world` simulates the API and its client. `limits` contains the contenders and `formulas` two of them, written from
published formulas. `scenarios` contains the changes of the API, `score` compares the limits, and `live` runs real
workers.
"""

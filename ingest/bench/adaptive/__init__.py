"""`ingest bench adaptive`: how close limits that adapt come to the best one, in virtual time, and our own with real workers.

`world` simulates the API and its client; `limits` are the contenders, `formulas` two of them from what others have published;
`scenarios` is what happens to the API; `score` compares; `live` runs real workers.
"""

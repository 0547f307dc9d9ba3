"""The lifecycle of one delivery, from the stream to the ack.

    reader ──▶ executor ──▶ handler ──▶ Outcome ──▶ settlement ──▶ batch ──▶ (commit, then ack)
    (slots)      │          (fetch, decode, decide)     ├──▶ retry set
                 ▼                                      ├──▶ dead letters
              in_flight                                 └──▶ released to the group

`handler` decides and writes nothing; `settlement`, with its parts, alone writes. An `Outcome` is all that passes between the two.
"""

"""The lifecycle of one delivery, from the stream to the ack.

    read ──▶ scheduler ──▶ gate ──▶ handler ──▶ Outcome ──▶ settlement ──▶ batch ──▶ (commit, then ack)
    (slots)      │                  (fetch, decode, decide)     ├──▶ retry set
                 ▼                                              ├──▶ dead letters
               held                                             └──▶ released to the group

The handler decides and writes nothing. Only `settle` writes. An `Outcome` is the only value that passes between the two.

A parameter `clock` is monotonic seconds. A parameter `draw` is a uniform random number between its arguments, so that many processes do
not act in step.
"""

"""The journey of one delivery, from the stream to the ack.

    intake ──▶ worker ──▶ handler ──▶ Outcome ──▶ settlement ──▶ batch ──▶ (commit, then ack)
    (new and     (slots)   (fetch, decide)          ├──▶ retry set
     abandoned)                                     └──▶ dead letters

`handler` decides and writes nothing, `settlement` alone writes. Between the two stands an `Outcome`, and nothing else.
"""

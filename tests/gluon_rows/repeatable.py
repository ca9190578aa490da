"""The rows of Gluon that draw nothing at random."""

from __future__ import annotations

from gluon_rows import loss, nn, rnn

RANDOM = ("Dropout", "dropout", "Zoneout", "zoneout")


ROWS = [
    row
    for row in (*nn.ROWS, *rnn.ROWS, *loss.ROWS)
    if not any(word in row.build + row.call for word in RANDOM)
]

"""Recurrent networks: cells compute one step, layers compute whole sequences.

>>> from d2lmini import nd
>>> from d2lmini.gluon import rnn
>>> layer = rnn.GRU(8)                          # one op for all steps
>>> layer.initialize()
>>> layer(nd.ones((5, 2, 3))).shape             # (T, N, C) -> (T, N, hidden_size)
(5, 2, 8)
>>> cell = rnn.GRUCell(8)                       # one call per step, or `unroll`
>>> cell.initialize()
>>> y, states = cell(nd.ones((2, 3)), cell.begin_state(batch_size=2))
>>> y.shape, [s.shape for s in states]
((2, 8), [(2, 8)])

Layers are faster. Cells can be combined (`SequentialRNNCell`, `BidirectionalCell`), wrapped
(`DropoutCell`, `ZoneoutCell`, `ResidualCell`), and written by the user.
"""

# isort: off
from d2lmini.gluon.rnn.recurrent import HybridRecurrentCell, RecurrentCell
from d2lmini.gluon.rnn.cells import GRUCell, LSTMCell, RNNCell
from d2lmini.gluon.rnn.containers import (
    BidirectionalCell, DropoutCell, HybridSequentialRNNCell, ModifierCell, ResidualCell,
    SequentialRNNCell, ZoneoutCell,
)  # fmt: skip
from d2lmini.gluon.rnn.layers import GRU, LSTM, RNN

__all__ = [
    "GRU", "LSTM", "RNN", "BidirectionalCell", "DropoutCell", "GRUCell", "HybridRecurrentCell",
    "HybridSequentialRNNCell", "LSTMCell", "ModifierCell", "RNNCell", "RecurrentCell",
    "ResidualCell", "SequentialRNNCell", "ZoneoutCell",
]  # fmt: skip

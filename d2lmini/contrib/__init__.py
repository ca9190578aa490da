"""What MXNet keeps under `contrib`, apart from ops (`nd.contrib`).

amp     training in mixed precision: float16 or bfloat16 where it is safe, else float32

>>> from d2lmini import contrib
>>> contrib.amp.list_lp16_ops("float16")
['Convolution', 'Deconvolution', 'FullyConnected', 'RNN']
"""

from d2lmini.contrib import amp as amp

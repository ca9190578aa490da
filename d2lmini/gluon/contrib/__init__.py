"""What MXNet keeps apart from its main layers.

nn      layers side by side, a norm across devices, pixels out of channels
data    a sampler

>>> from d2lmini import gluon
>>> gluon.contrib.nn.PixelShuffle2D((2, 3))
PixelShuffle2D((2, 3))
"""

from d2lmini.gluon.contrib import data, nn

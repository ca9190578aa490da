"""What MXNet keeps under `contrib`, apart from ops (`nd.contrib`).

amp     training in mixed precision: float16 or bfloat16 where it is safe, else float32

>>> from d2lmini import contrib, nd
>>> with contrib.amp.init("float16"):
...     nd.dot(nd.ones((2, 2), dtype="float16"), nd.ones((2, 2))).dtype.__name__
'float32'
"""

from d2lmini.contrib import amp as amp

"""The program that `python -m d2lmini run` runs, once more in a process that it started.

`multiprocessing` (by spawn or forkserver) runs the parent's main module again in the child, so that
functions defined there can be found; it does so by the name in `__main__.__spec__`, and `runner.py`
put this module's name there. Here the alias is installed, then the program's file is run; its
`__name__` is "__mp_main__", so what it guards by `if __name__ == "__main__":` does not run again.
"""

import os
import sys
from pathlib import Path

from d2lmini.compat.mxnet_alias import install_as_mxnet
from d2lmini.compat.mxnet_alias.runner import PROGRAM

if __name__ == "__mp_main__":
    install_as_mxnet()
    __file__ = sys.argv[0] = os.environ[PROGRAM]
    exec(compile(Path(__file__).read_bytes(), __file__, "exec", dont_inherit=True), globals())

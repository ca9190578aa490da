"""Runs the program of `python -m d2lmini run` again in a child process.

`multiprocessing` (by spawn or forkserver) runs the parent's main module again in the child, to find
the functions defined there; it takes the name in `__main__.__spec__`, which `runner.py` has set to
this module's. This module installs the alias, then runs the program's file; its `__name__` is
"__mp_main__", so code below `if __name__ == "__main__":` does not run again.
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

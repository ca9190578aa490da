"""`python -m d2lmini`: the command line; see `d2lmini.cli`."""

from __future__ import annotations

import sys

from d2lmini.cli import main

if __name__ == "__main__":
    sys.exit(main())

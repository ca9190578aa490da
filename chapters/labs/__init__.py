"""What the chapters import and do not show: checks of exercises, generators of instances, plots.

One module a chapter that needs one, named after the chapter: `labs/auto_parallelism.py` belongs to
`05-auto-parallelism.ipynb`. A check is a function `check_NAME(answer)`: it prints a sentence if the
answer is right, and raises `CheckFailed` with a hint if it is not (`grading.py`). `shared.py` has
what several chapters use.

Importing `labs` also lets `d2l.compare` say what a quiet machine found (`reference.py`).
"""

from d2lmini.d2l.compare import remarks
from labs import reference

remarks["reference"] = reference.remark

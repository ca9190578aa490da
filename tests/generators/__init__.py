"""Random programs, drawn as text: the same text runs on every engine and in the real MXNet.

A generator is a module with `draw(seed) -> str`, a program that a person could have written. It
uses `mx`, `nd`, `autograd`, `gluon`, `init`, `np` and calls `keep(value)` with what is to be
compared: arrays and numbers. `agree` runs such a text on all engines; a generator with a check of
its own compares more. `run` runs many of them:

    python tests/generators/run.py --programs 1000 --seed 7 NAME

`test_generated.py` runs a few of each with fixed seeds, `make fuzz` many with the day's.
"""

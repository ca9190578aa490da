"""Calls of each public function and class of MXNet 1.9 with drawn arguments, there and here.

Nobody shapes the questions. The real MXNet's signatures and docstrings say which arguments a call
takes (`signatures`); values are drawn from those (`values`) and become a program of a few lines
(`calls`, `classes`). The real MXNet draws until a call succeeds, except where a seed
asks for the first draw, errors included. Both libraries run the program (`execute`), and `compare`
finds the first difference:

    python tests/generators/sweep/run.py                       # the table, by module

What d2lmini leaves out is not drawn (`migration_table.look_up` asks the library itself), and a
difference that is wanted stands with its reason in `tools/listed_differences.py`, which
docs/migration.md shows.
"""

"""Many small rows in one test: all of them run, and each that fails is named.

For pytest a test costs some 5 ms beside its own work, which is more than most rows of a table take.

    @over("case", by(lambda case: case.op, ROWS), name=lambda case: case.id)
    def test_op(case): ...

makes a test of each op. A row that fails does not end it: the last lines of its report name all
that failed, and above them stand their values and where they failed. After each row the engine must
be quiet, as after a test. Rows that are skipped are counted at the end of the run (with -v, named).
D2LMINI_TEST_ROW=TEXT runs only the rows whose name contains it.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from d2lmini import engine

#: Of so many rows the report shows where they failed; the others are named.
SHOWN = 5
#: Reasons for skipping that begin with the same so many letters are one.
WIDTH = 75


def by(key: Callable[[Any], Hashable], rows: Iterable[Any]) -> dict[str, list]:
    """The rows of each key, in their order."""
    tests: dict[str, list] = {}
    for row in rows:
        tests.setdefault(str(key(row)), []).append(row)
    return tests


def over(names: str, tests: dict[str, list], name: Callable[[Any], str] = str) -> Callable:
    """Makes a test of one row a test of many, one for each entry of `tests`.

    The row is given to the parameter called `names`, or to several, as in "case, training"; all
    others are fixtures, the same for the rows of a test.
    """
    places = [place.strip() for place in names.split(",")]

    def decorate(body: Callable) -> Callable:
        fixtures = [p for p in inspect.signature(body).parameters.values() if p.name not in places]

        @functools.wraps(body)
        def test(request: pytest.FixtureRequest, rows: Sequence[Any], **given: Any) -> None:
            def one(row: Any) -> None:
                values = row if len(places) > 1 else (row,)
                body(**dict(zip(places, values, strict=True)), **given)

            run(one, rows, name, request)

        kind = inspect.Parameter.KEYWORD_ONLY
        own = [inspect.Parameter(p, kind) for p in ("request", "rows")]
        signature = inspect.Signature([*own, *(p.replace(kind=kind) for p in fixtures)])
        test.__signature__ = signature  # type: ignore[attr-defined]
        return pytest.mark.parametrize("rows", list(tests.values()), ids=list(tests))(test)

    return decorate


def run(
    body: Callable[[Any], None],
    rows: Sequence[Any],
    name: Callable[[Any], str],
    request: pytest.FixtureRequest,
) -> None:
    """The body for every row; then whatever there is to report about them."""
    only = os.environ.get("D2LMINI_TEST_ROW", "")
    chosen = [row for row in rows if only in name(row)] if only else rows
    if not chosen:
        pytest.skip(f"no row's name contains {only!r}")
    failed: list[tuple[str, str]] = []
    skipped: list[tuple[str, str]] = []
    shown: list[str] = []
    for row in chosen:
        try:
            body(row)
            engine.waitall()
            assert engine.stats().pending == 0, "the row left tasks behind"
        except pytest.skip.Exception as reason:
            skipped.append((name(row), str(reason)))
        except (Exception, pytest.fail.Exception) as error:
            if "from pytest-timeout" in str(error):
                print("in the row", name(row))
                raise
            missed = no_compiler()
            if missed:
                skipped.append((name(row), missed))
                continue
            failed.append((name(row), f"{type(error).__name__}: {error}".splitlines()[0]))
            if len(shown) < SHOWN:
                shown.append(described(row, name(row), error))
            quieted()
    request.node.user_properties.append(("rows", len(chosen)))
    request.node.user_properties.append(("skipped rows", skipped))
    if failed:
        lines = [f"{row}: {error}" for row, error in failed]
        title = f"{len(failed)} of {len(chosen)} rows failed:"
        pytest.fail("\n".join([*shown, title, *lines]), pytrace=False)
    if len(skipped) == len(chosen):
        pytest.skip("; ".join(dict.fromkeys(reason for _, reason in skipped)))


def described(row: Any, name: str, error: BaseException) -> str:
    """The row's values, and where it failed."""
    with np.printoptions(threshold=20, edgeitems=2):
        values = repr(row)
    below = error.__traceback__
    while below is not None and below.tb_frame.f_code.co_filename == __file__:
        below = below.tb_next
    trace = traceback.format_exception(type(error), error, below)
    return "\n".join([f"---- {name}", values, "", *trace])


def quieted() -> None:
    """What a row that failed left in the engine is not the next one's fault."""
    try:
        engine.waitall()
    except Exception as error:
        print(f"left behind: {error}")


def no_compiler() -> str:
    """Why a row's GPU kernels could not run, if nobody could compile them (see `conftest.py`)."""
    fake = sys.modules.get("fakes.cuda_cpp")
    if fake is None or not fake.missed:
        return ""
    reason = f"there is no g++ to compile {fake.missed[0]} with"
    fake.missed.clear()
    return reason


def summary(reports: Iterable[Any], all_names: bool) -> list[str]:
    """How many rows there were, and which were skipped, by reason."""
    tests = [dict(r.user_properties) for r in reports if getattr(r, "when", "") == "call"]
    tests = [properties for properties in tests if "rows" in properties]
    if not tests:
        return []
    reasons: dict[str, list[str]] = {}
    for properties in tests:
        for name, reason in properties["skipped rows"]:
            reasons.setdefault(reason.splitlines()[0][:WIDTH], []).append(name)
    lines = [f"{sum(t['rows'] for t in tests)} rows in {len(tests)} tests"]
    for reason, names in sorted(reasons.items()):
        listed = names if all_names else [*names[:2], *["..."][: len(names) - 2]]
        lines.append(f"SKIPPED [{len(names)}] {reason}: {', '.join(listed)}")
    return lines

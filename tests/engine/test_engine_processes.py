"""Rule 9: fork and exit. Each program runs in a process of its own.

Importing starts no thread. A forked child has a fresh engine; what was pending in the parent raises
"pending at fork" there. At exit what was pushed is finished, within a deadline.
"""

from __future__ import annotations

import os

import pytest
from worlds import run_program

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

# Forking a program with threads is what these tests are about; Python 3.12 and newer warn of it.
QUIET = {"PYTHONWARNINGS": "ignore:This process:DeprecationWarning"}

FORK = """
    import os, sys, threading, time, warnings
    import numpy as np
    from d2lmini import engine, nd, storage, MXNetError
    from invariants import check_invariants
    from worlds import Array, fill, until

    def child(act):
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            try:
                act()
                engine.waitall()
                sys.stdout.flush()
                os._exit(0)
            except BaseException as problem:
                print("child:", type(problem).__name__, problem, flush=True)
                os._exit(1)
        until(lambda: os.waitpid(pid, os.WNOHANG)[0], 60)
"""


def check(program: str, expected: str, fork: bool = True, **environment: str) -> None:
    code, out, err = run_program((FORK if fork else "") + program, **{**QUIET, **environment})
    assert (code, out, err) == (0, expected, "")


@forks
@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_fork_with_work_pending(kind: str):
    """The child computes; what was pending says so until it is overwritten; the parent goes on."""
    check(
        """
    go = threading.Event()
    with engine.use("KIND"):
        done, pending, both = Array(), Array(), engine.new_var()
        fill(done, 5)
        engine.waitall()
        before = engine.stats()
        if engine.current.kind == "threaded":
            fill(pending, 7, during=lambda: go.wait(30))
            engine.push(int, reads=[done, pending], writes=[both], name="sum")

        def act():
            assert engine.stats().pending == engine.stats().executed == 0
            if engine.current.kind == "threaded":
                for var, name in ((pending, "fill"), (both, "sum")):
                    try:
                        engine.wait_for_var(var)
                        raise AssertionError("no error")
                    except MXNetError as error:
                        text = f"{name}: pending at fork; only the parent process computes it"
                        assert str(error).startswith(text), error
                        assert "issued at" in str(error)
            engine.wait_for_var(done)
            assert done.chunk.data[0] == 5
            fill(pending, 8)
            engine.push(lambda: done.chunk.data.__iadd__(1), reads=[done], writes=[done])
            engine.wait_for_var(pending)
            engine.wait_for_var(done)
            assert pending.chunk.data[0] == 8 and done.chunk.data[0] == 6
            assert pending.chunk.idle and done.chunk.idle
            assert engine.stats().pending_bytes == 0
            check_invariants()
            x = nd.ones((300, 300)) + 1
            assert x.sum().asscalar() == 180000

        child(act)
        go.set()
        engine.waitall()
        assert engine.stats().executed == before.executed + 2 * (engine.current.kind == "threaded")
        assert done.chunk.data[0] == 5
    print("both are well")
    """.replace("KIND", kind),
        "both are well",
    )


# -- exit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_exit_finishes_what_was_pushed(kind: str):
    check(
        """
    import time
    from d2lmini import engine
    a = engine.new_var()
    for i in range(3):
        engine.push(lambda i=i: (time.sleep(0.02), print(i)), writes=[a])
    engine.push(lambda: engine.push(lambda: print("pushed by a task"), writes=[a]), writes=[a])
    """,
        "0\n1\n2\npushed by a task",
        fork=False,
        D2LMINI_ENGINE=kind,
    )


def test_exit_reports_what_does_not_end_and_ends():
    code, out, err = run_program(
        """
        import threading
        from d2lmini import engine
        a, begun = engine.new_var(), threading.Event()
        engine.push(lambda: (begun.set(), threading.Event().wait()), writes=[a])
        engine.push(lambda: print("never"), writes=[a])
        begun.wait()
        """,
        D2LMINI_EXIT_DEADLINE_S="0.2",
    )
    assert (code, out) == (0, "")
    assert err == (
        "d2lmini: 2 operations were still pending 0.2 s after the program ended; they are dropped"
    )


def test_exit_tells_errors_that_nobody_has_seen():
    code, out, err = run_program("""
        import gc
        from d2lmini import engine
        a = engine.new_var()
        engine.push(lambda: 1 / 0, writes=[a], name="kept")
        engine.push(lambda: 1 / 0, writes=[engine.new_var()], name="lost")
    """)
    assert (code, out) == (0, "")
    assert "an error that no wait has raised:\nkept: ZeroDivisionError" in err
    assert "1 operation(s) failed and the results were dropped unseen:\nlost: Zero" in err
    assert "Traceback" not in err and "Exception ignored" not in err

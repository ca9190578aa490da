"""The end of a process, and forks: nothing hangs. Each story is a program of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from interrupts import PACKAGE

unix = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def start(text: str, **variables: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent), **variables},
    )  # fmt: skip


def run(text: str, **variables: str) -> tuple[str, str]:
    """What the program prints; it must not take long."""
    process = start(text, **variables)
    try:
        return process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"it hangs\n{process.communicate()}") from None


ACTS = {
    "a wait for what it pushes": "(self.x + 1).asnumpy()",
    "a wait for a big one": "nd.dot(self.big, self.big).wait_to_read()",
    "waitall": "self.x + 1; nd.waitall()",
    "a push of its own": "engine.push(lambda: print('ran'), writes=[self.x])",
    "a product in parallel": "nd.waitall(); (self.big * 2).asnumpy()",
    "a bulk scope": "with engine.bulk(5): y = self.big + 1\nnd.waitall()",
}


@pytest.mark.parametrize("kind", ["threaded", "naive"])
def test_finalizers_at_the_end_of_the_process(kind):
    out, err = run(
        f"""
        from d2lmini import engine, nd
        class Last:
            def __init__(self, act):
                self.act = act
                self.x, self.big = nd.ones(3), nd.ones((300, 300))
                nd.dot(self.big, self.big).wait_to_read()      # workers are there
            def __del__(self):
                exec(self.act, {{"self": self, "nd": nd, "engine": engine, "print": print}})
                print("done")
        lasts = [Last(act) for act in {[*ACTS.values()]}]
        engine.inline_below = 0
        """,
        D2LMINI_ENGINE=kind,
    )
    assert (sorted(out.split()), err) == (["done"] * len(ACTS) + ["ran"], "")


def test_a_finalizer_that_waits_for_what_was_dropped():
    """Its operation still runs when the process ends: that is an error, no hang."""
    out, err = run(
        """
        import functools, time
        from d2lmini import engine, nd
        class Last:
            def __init__(self):
                self.x = nd.ones(3)
            def __del__(self):
                try:
                    self.x.asnumpy()
                except Exception as problem:
                    print(type(problem).__name__)
        last = Last()
        sleeps = functools.partial(time.sleep, 30)      # holds nothing of this module
        engine.push(sleeps, reads=[last.x], writes=[last.x])
        """,
        D2LMINI_EXIT_DEADLINE_S="0.2",
    )
    assert out == "MXNetError\n", err
    assert "1 operations were still pending" in err


@pytest.mark.skipif(os.name == "nt", reason="signals are of Unix")
def test_ctrl_c_with_a_full_queue_ends_the_process():
    """It does not compute for long what nobody wants any more: hundreds of seconds are queued."""
    process = start("""
        import time
        from d2lmini import engine, nd
        x = nd.ones(3)
        for _ in range(10_000):
            engine.push(lambda: time.sleep(0.05), reads=[x], writes=[x])
        print("full", flush=True)
        x.asnumpy()
    """)
    assert process.stdout.readline() == "full\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "KeyboardInterrupt" in err and "still pending when Ctrl-C ended the program" in err


@unix
def test_a_fork_waits_until_an_import_has_ended(tmp_path):
    """Deterministically: the fork comes while a guarded import is under way."""
    out, err = run("""
        import os, threading, time
        from d2lmini import nd
        from d2lmini.base import forks
        inside, go = threading.Event(), threading.Event()
        def fetch():
            with forks.importing:
                inside.set()
                time.sleep(0.3)
                go.set()
        thread = threading.Thread(target=fetch)
        thread.start()
        inside.wait()
        child = os.fork()
        if child == 0:
            with forks.importing:
                os._exit(0 if go.is_set() else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        thread.join()
        with forks.importing:
            print("free")
    """)
    assert (out, err) == ("0\nfree\n", "")

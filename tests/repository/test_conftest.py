"""What `conftest.py` promises about every test, seen on tests made to break it."""

import re
import subprocess
import sys

import pytest
from run_pytest import run

HANG = """
import threading
from d2lmini import engine

def test_hangs():
    engine.push(threading.Event().wait, (), (engine.new_var(),))
    engine.waitall()

def test_after():
    assert True
"""

FAULTS = """
import threading, warnings
from d2lmini import engine

def test_leaves_an_error():
    engine.push(lambda: 1 / 0, (), (engine.new_var(),))

def test_reports_it():
    var = engine.new_var()
    engine.push(lambda: 1 / 0, (), (var,))
    try:
        engine.wait_for_var(var)
    except Exception as error:
        assert "division by zero" in str(error)

def test_warns():
    warnings.warn("beware")

def test_kind(engine_kind):
    here = []
    engine.push(lambda: here.append(threading.current_thread()), (), (engine.new_var(),))
    engine.waitall()
    assert (here[0] is threading.main_thread()) == (engine_kind == "naive")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there pytest-timeout ends the whole process")
def test_a_hang_fails_and_ends_the_run(tmp_path):
    output = run(tmp_path, HANG, "--timeout", "1")
    assert "FAILED test_made_up.py::test_hangs - Failed: Timeout (>1.0s)" in output
    assert "test_hangs hung" in output
    assert "1 failed in" in output  # and test_after did not run


def test_errors_left_behind_and_warnings_fail_and_both_engines_run(tmp_path):
    output = run(tmp_path, FAULTS)
    assert "ERROR test_made_up.py::test_leaves_an_error" in output
    assert "PASSED test_made_up.py::test_reports_it" in output
    assert "FAILED test_made_up.py::test_warns - UserWarning: beware" in output
    assert "PASSED test_made_up.py::test_kind[threaded]" in output
    assert "PASSED test_made_up.py::test_kind[naive]" in output


LAW = """
import pytest

@pytest.mark.law
@pytest.mark.parametrize("row", range(20))
def test_row(row):
    pass

def test_alone():
    pass
"""


def test_the_parts_of_a_law_that_commits_run_make_all_of_it(tmp_path):
    git = ["git", "-c", "user.name=d", "-c", "user.email=d"]
    parts = []
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "a commit"]):
        subprocess.run([*git, *command], cwd=tmp_path, check=True)
        output = run(tmp_path, LAW, "--sample", "2")
        assert "PASSED test_made_up.py::test_alone" in output
        parts.append(set(re.findall(r"PASSED \S+test_row\[(\d+)\]", output)))
    assert parts[0] | parts[1] == {str(row) for row in range(20)}
    assert not parts[0] & parts[1]
    assert min(map(len, parts)) >= 5

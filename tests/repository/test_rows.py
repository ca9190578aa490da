"""Many rows in one test (`tools/rows.py`): nothing that a test of its own would tell is lost."""

import re
from types import SimpleNamespace

import pytest
import rows
from run_pytest import run as run_pytest

from d2lmini import engine

TABLE = """
import pytest
from d2lmini import engine
from rows import by, over

@pytest.fixture(params=["red", "blue"])
def color(request):
    return request.param

@over("word, n", by(lambda row: row[0], [("a", 1), ("b", 2), ("a", 3)]), name=str)
def test_table(word, n, color):
    if n == 1:
        pytest.skip("one is " + color)
    assert (word, n, color) != ("a", 3, "blue")

@over("n", {"all": [1, 2]})
def test_hangs(n):
    while n == 2:
        pass
"""


def given():
    """(what to hand to `run`, what it notes)"""
    properties: list = []
    return SimpleNamespace(node=SimpleNamespace(user_properties=properties)), properties


def test_a_test_of_each_key_and_every_row_counts(tmp_path):
    output = run_pytest(tmp_path, TABLE, "--timeout", "2", "-v")
    assert "PASSED test_made_up.py::test_table[red-a]" in output
    assert "PASSED test_made_up.py::test_table[blue-b]" in output
    assert "FAILED test_made_up.py::test_table[blue-a]" in output
    assert "1 of 2 rows failed:\n('a', 3): AssertionError: assert ('a', 3, 'blue') != " in output
    assert re.search(r"SKIPPED \[1\] one is red: \('a', 1\)", output)
    # The row that hangs is named, and nothing goes on.
    assert "in the row 2" in output and "test_hangs[all] hung" in output
    assert "6 rows in 4 tests" in output


def test_skipped_rows_are_noted_and_all_skipped_is_a_skip():
    request, properties = given()

    def body(n: int) -> None:
        if n < 2:
            pytest.skip("too small")

    rows.run(body, range(3), str, request)
    noted = SimpleNamespace(when="call", user_properties=properties)
    other = SimpleNamespace(when="call", user_properties=[])
    assert rows.summary([noted, other], True) == [
        "3 rows in 1 tests",
        "SKIPPED [2] too small: 0, 1",
    ]
    with pytest.raises(pytest.skip.Exception, match=r"^too small$"):
        rows.run(body, range(2), str, request)


def test_a_row_is_told_what_it_leaves_in_the_engine():
    def body(n: int) -> None:
        if n == 1:
            engine.push(lambda: 1 / 0, writes=[engine.new_var()])

    with pytest.raises(pytest.fail.Exception, match=r"by zero\n(.|\n)*1 of 3 rows failed:\n1: "):
        rows.run(body, range(3), str, given()[0])

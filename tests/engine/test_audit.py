"""`engine.audit`: every planted undeclared read and write of an array is found, at its line and by
its array; correct programs are not accused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from d2lmini import MXNetError, autograd, engine, nd

DTYPES = ["float32", "float64", "int32", "uint8", "int64"]


def planted(seed: int) -> tuple[Callable[[], object], set[tuple[str, str, str]]]:
    """A random program of pushed functions and operators on arrays, in which some functions read or
    write one array more than they name; and (function, kind, array) of each."""
    rng = random.Random(seed)
    n = rng.randint(4, 7)
    dtype = rng.choice(DTYPES)
    steps: list[tuple[str, list[int], list[int], int | None, str]] = []
    wrong: set[tuple[str, str, str]] = set()
    for k in range(rng.randint(5, 15)):
        reads = rng.sample(range(n), rng.randint(0, 2))
        target = rng.choice([i for i in range(n) if i not in reads])
        hidden, kind = None, ""
        if rng.random() < 0.25:
            hidden = rng.choice([i for i in range(n) if i != target and i not in reads])
            kind = rng.choice(["reads", "writes"])
            wrong.add((f"step{k}", kind, f"array{hidden}"))
        steps.append((f"step{k}", reads, [target], hidden, kind))

    def program() -> object:
        arrays = [nd.array(np.arange(6) % 5 + i, dtype=dtype) * 1 for i in range(n)]
        nd.waitall()
        views = [array.asnumpy_view() for array in arrays]
        current: Any = engine.current
        if current.kind == "stepped":
            current.name(**{f"array{i}": array for i, array in enumerate(arrays)})
        for name, reads, (target,), hidden, kind in steps:

            def step(reads=reads, target=target, hidden=hidden, kind=kind):
                total = sum((views[i] for i in reads), np.zeros_like(views[target]))
                if kind == "reads":
                    total = total + views[hidden]
                views[target][...] = (views[target] + total * 3 + 1) % 97
                if kind == "writes":
                    views[hidden][...] = (views[hidden] + 1) % 97

            engine.push(step, [arrays[i] for i in reads], [arrays[target]], name=name)
        return [array + 0 for array in arrays]

    return program, wrong


@pytest.mark.parametrize("seed", range(25))
def test_every_planted_access_is_found_and_no_other(seed):
    program, wrong = planted(seed)
    audit = engine.audit(program)
    found = {(each.operation.name, each.kind, each.array) for each in audit.found}
    assert found >= wrong
    assert {name for name, _, _ in found} == {name for name, _, _ in wrong}
    # To change an array in place is to read it, too.
    assert {each for each in found - wrong if each[1] == "writes"} == set()
    for each in audit.found:
        assert "test_audit.py" in each.operation.where and "engine.push(step" in str(each)


def test_an_access_that_only_the_result_of_the_program_shows():
    def program():
        a, b = nd.ones((3,)), nd.zeros((3,)) + 2
        nd.waitall()
        x, y, log = a.asnumpy_view(), b.asnumpy_view(), []
        engine.push(lambda: log.append(x.sum()), reads=[a], name="honest")
        engine.push(lambda: log.append(y.sum()), writes=[engine.new_var()], name="keeps")
        engine.waitall()
        return log

    (found,) = engine.audit(program).found
    assert (found.operation.name, found.kind) == ("keeps", "reads")


def test_an_access_that_ends_in_an_error():
    def program():
        table, i = nd.arange(5), nd.array([3], dtype="int32")
        out = nd.zeros((1,))
        nd.waitall()
        x, k, y = table.asnumpy_view(), i.asnumpy_view(), out.asnumpy_view()

        def look_up():
            y[0] = x[k[0]]

        engine.push(look_up, reads=[table], writes=[out])
        return out

    (found,) = engine.audit(program).found
    assert (found.operation.name, found.kind) == ("look_up", "reads")


def test_an_array_that_no_operation_names_and_one_that_is_only_to_be_read():
    def program():
        secret, read = nd.array([1.0, 2.0]), nd.array([3.0, 4.0])
        out = nd.zeros((2,))
        nd.waitall()
        s, r, y = secret.asnumpy_view(), read.asnumpy_view(), out.asnumpy_view()

        def add():
            np.add(s, r, out=y)
            r[:] = 0

        engine.push(add, reads=[read], writes=[out])
        return out, secret.shape

    found = {(each.kind, each.array) for each in engine.audit(program).found}
    assert ("reads", "an array that no operation names") in found
    assert "writes" in {kind for kind, _ in found} and len(found) == 2


def test_correct_programs_are_not_accused():
    def in_part():
        a = nd.zeros((4,))
        nd.waitall()
        x = a.asnumpy_view()
        engine.push(lambda: x.__setitem__(0, 3), writes=[a])
        engine.push(lambda: x.__iadd__(1), writes=[a])
        return a

    def with_tags():
        tag, log = engine.new_var(), []
        engine.push(lambda: log.append(1), writes=[tag])
        engine.push(lambda: log.append(len(log)), writes=[tag])
        engine.waitall()
        return log

    def training():
        w, x = nd.array([[1.0, 2.0]]), nd.array([[1.0], [3.0]])
        w.attach_grad()
        with autograd.record():
            loss = nd.dot(w, x).sum()
        loss.backward()
        g, v = w.grad, nd.zeros((1, 2))
        nd.waitall()
        into, of = v.asnumpy_view(), g.asnumpy_view()
        engine.push(lambda: np.multiply(of, 2, out=into), reads=[g], writes=[v])
        return w - v

    def failing():
        a, b = nd.ones((2,)), nd.zeros((2,))
        nd.waitall()
        engine.push(lambda: 1 / 0, reads=[a], writes=[b])
        return a

    for program in (in_part, with_tags, training, failing):
        audit = engine.audit(program)
        assert audit.found == [] and audit.functions >= 1, audit
        assert "no undeclared read or write" in str(audit)
    engine.waitall()  # raises nothing: those errors belong to the audit
    assert "0 pushed functions" in str(engine.audit(lambda: nd.ones((2,)) + 1))


def test_a_program_that_does_not_repeat_itself_is_refused():
    with pytest.raises(MXNetError, match="does not do the same when it is run twice"):
        engine.audit(lambda: nd.ones((1,)) * random.random())


def test_it_takes_few_runs_however_many_functions_there_are():
    runs = []

    def program():
        runs.append(1)
        a = nd.zeros((2,))
        nd.waitall()
        x = a.asnumpy_view()
        for _ in range(200):
            engine.push(lambda: x.__iadd__(1), writes=[a])
        return a

    assert engine.audit(program).functions == 200
    assert len(runs) == 4

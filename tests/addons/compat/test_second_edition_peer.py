"""The second edition's helpers over d2lmini compute what they compute over the real MXNet."""

from __future__ import annotations

import inspect

import numpy
import pytest
import second_edition

import d2lmini
from d2lmini import npx

EXPERIMENTS = [
    function
    for name, function in inspect.getmembers(second_edition, inspect.isfunction)
    if list(inspect.signature(function).parameters) == ["library"] and name != "helpers"
]


@pytest.fixture(autouse=True)
def np_mode():
    npx.set_np()
    yield
    npx.reset_np()


def assert_same(ours, theirs, where="result"):
    """Numbers nearly so, all else exactly."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), where
        ours, theirs = list(ours.values()), list(theirs.values())
    if isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs), where
        for i, (a, b) in enumerate(zip(ours, theirs)):
            assert_same(a, b, f"{where}[{i}]")
    elif isinstance(theirs, str):
        assert ours == theirs, where
    else:
        numpy.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5, err_msg=where)
        assert getattr(ours, "dtype", None) == getattr(theirs, "dtype", None), where


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda function: function.__name__)
def test_an_experiment(experiment, mxnet):
    assert_same(experiment(d2lmini), mxnet.ask(experiment))


def test_there_are_experiments_and_the_comparison_sees_what_differs():
    assert len(EXPERIMENTS) == 5
    for ours, theirs in [([1.0], [1.1]), ({"a": 1}, {"b": 1}), ("x", "y"), ([1], [1, 2])]:
        with pytest.raises(AssertionError):
            assert_same(ours, theirs)

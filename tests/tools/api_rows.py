"""Evaluates the expressions of `data/api_names.txt` in a library with MXNet's names. Both
interpreters import this module.
"""

import numpy as np

VALUES = {
    "x": [[1, 2], [3, 4]],
    "v": [3, 1, 2],
    "r": [[1, 3]],
    "h": [0.5, 0.25],
    "s": [-1.5, 0.5, 2.5],
    "img": [[[[1, 2], [3, 4]]]],
}


def evaluate(mx, expression, tmp):
    """The value as plain Python; arrays become lists, types their names, contexts strings."""
    arrays = {name: mx.nd.array(value) for name, value in VALUES.items()}

    def plain(value):
        if isinstance(value, mx.nd.NDArray):
            value = value.asnumpy()
        if isinstance(value, (np.ndarray, np.generic)):
            value = value.tolist()
        if isinstance(value, type):
            return value.__name__
        if isinstance(value, (list, tuple)):
            return [plain(each) for each in value]
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        return str(value) if isinstance(value, mx.Context) else value

    return plain(eval(expression, {**arrays, "mx": mx, "nd": mx.nd, "np": np, "tmp": tmp}))

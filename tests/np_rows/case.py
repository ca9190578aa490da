"""One row of the table that tests `np` and `npx`: a name and an expression.

    rows("exp log", "p(2, 3)", "p()")          # np.exp(p(2, 3)), np.exp(p()), np.log(p(2, 3)), ...
    whole("x.sum", "f(2, 3).sum(); f(3) + 1")   # the expressions as they are

Each module beside this one holds `ROWS`, the rows of one family; `evaluate` says which names an
expression knows. `tests/np` runs every row here, in NumPy and in the real MXNet, with gradients,
with `out=` and in hybridized nets. A new name of `np` is tested by adding its row.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """`text` is evaluated with the `np` of each library; values, shapes and dtypes must be equal.

    name     the name under test, as in 'add', 'random.normal', 'npx.relu', 'x.sum'
    numpy    compare with NumPy: True, False, or another expression for NumPy
    mxnet    '' or why MXNet's result is another
    grad     the gradients of float inputs agree with differences; False where there are none
    slope    '' or why MXNet's gradient is another
    traced   the same in a hybridized net; False where the shape depends on values
    error    the class of the error that is expected here; MXNet must refuse, too
    """

    name: str
    text: str
    numpy: bool | str = True
    mxnet: str = ""
    grad: bool = True
    slope: str = ""
    traced: bool = True
    error: str = ""
    rtol: float = 1e-5
    atol: float = 1e-6

    @property
    def id(self) -> str:
        """A readable test name."""
        return self.text.replace(" ", "")


def rows(names: str, *arguments: str, **options) -> list[Row]:
    """A row for each of the names, called with each of the arguments."""
    return [
        Row(name, f"{'' if name.startswith('npx.') else 'np.'}{name}({given})", **options)
        for name in names.split()
        for given in "; ".join(arguments).split("; ")
    ]


def whole(name: str, *texts: str, **options) -> list[Row]:
    """Rows whose expressions are written out."""
    return [Row(name, text, **options) for text in "; ".join(texts).split("; ")]

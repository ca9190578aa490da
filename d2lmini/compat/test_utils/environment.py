"""The surroundings of tests: default context, environment variables, retries, silenced stderr.

>>> import os
>>> from d2lmini.test_utils import environment
>>> with environment("MY_SWITCH", "1"):
...     os.environ["MY_SWITCH"]
'1'
>>> "MY_SWITCH" in os.environ
False
"""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from d2lmini.context import Context, current_context, num_gpus
from d2lmini.scopes import Undo, contextmanager, scope

F = TypeVar("F", bound=Callable[..., Any])


def default_context() -> Context:
    """The context of tests: the current context."""
    return current_context()


def set_default_context(ctx: Context) -> None:
    """Make `ctx` the current context of this thread."""
    Context.default_ctx = ctx


def default_dtype() -> type:
    """The dtype of random test data: float32."""
    return np.float32


def list_gpus() -> range:
    """The numbers of the existing GPUs."""
    return range(num_gpus())


def is_cd_run() -> bool:
    """True if the environment says that the tests of a release run (CD_JOB=1)."""
    return os.environ.get("CD_JOB", "0") == "1"


def is_aarch64_run() -> bool:
    """True if the processor is a 64-bit ARM."""
    return platform.machine() == "aarch64"


def has_tvm_ops() -> bool:
    """False: there are no operators that TVM has generated."""
    return False


def is_op_runnable() -> bool:
    """True: the default context runs every operator. MXNet excepts GPUs for operators of TVM."""
    return True


def download(
    url: str, fname: str | None = None, dirname: str | None = None, overwrite: bool = False,
    retries: int = 5,
) -> str:  # fmt: skip
    """Download `url` to the file `fname` (default: the URL's) in `dirname`, and return the path.
    ConnectionError when the attempts fail, e.g. without a network; see `gluon.utils.download`."""
    from d2lmini.gluon import utils  # gluon is large, and most tests download nothing

    path = os.path.join(dirname or "", fname or url.split("/")[-1])
    return utils.download(url, path, overwrite, retries=max(retries - 1, 0))


@scope
def environment(undo: Undo, *args: Any) -> None:
    """Set environment variables in the scope: `environment(name, value)` or `environment(dict)`.
    A value of None unsets the variable. The former values are restored."""
    if len(args) not in (1, 2) or (len(args) == 1 and not isinstance(args[0], dict)):
        raise TypeError("environment: takes a name and a value, or a dict of them")
    wanted: dict[str, str | None] = args[0] if len(args) == 1 else {args[0]: args[1]}
    for name, value in wanted.items():
        if not isinstance(value, (str, type(None))):
            raise TypeError(f"environment: the value of {name} must be a str or None: {value!r}")
    undo.append(functools.partial(_set, {name: os.environ.get(name) for name in wanted}))
    _set(wanted)


def _set(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def discard_stderr() -> Iterator[None]:
    """Discard everything written to the standard error stream, by C code too."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def retry(n: int) -> Callable[[F], F]:
    """A decorator: run a test up to n times until it raises no AssertionError."""
    if n < 1:
        raise AssertionError(f"retry: a test must run at least once, got n={n}")

    def decorate(test: F) -> F:
        @functools.wraps(test)
        def tried(*args: Any, **kwargs: Any) -> Any:
            for _ in range(n - 1):
                try:
                    return test(*args, **kwargs)
                except AssertionError:
                    continue
            return test(*args, **kwargs)

        return tried  # type: ignore[return-value]

    return decorate


def assert_exception(
    f: Callable[..., Any], exception_type: type[BaseException], *args: Any, **kwargs: Any
) -> None:
    """`f(*args, **kwargs)` must raise `exception_type`; AssertionError if it raises nothing; any
    other error passes through."""
    try:
        f(*args, **kwargs)
    except exception_type:
        return
    raise AssertionError(f"{getattr(f, '__name__', f)} raised no {exception_type.__name__}")

"""Helpers for the tests of user programs: MXNet's `test_utils`.

>>> import numpy as np
>>> from d2lmini import nd, test_utils
>>> test_utils.assert_almost_equal(nd.array([1, 2]), np.array([1.0, 2.00001]))
>>> test_utils.check_numeric_gradient(nd.tanh, [np.linspace(-1, 1, 5)], rtol=1e-2, atol=1e-3)

Reading order: `compare.py` (are two arrays alike, and where do they differ most), `samples.py`
(random shapes and arrays), `environment.py` (context, environment, retries), `checks.py` (values
and gradients of Symbols, optimizers), `executors.py` (speed and gradients of executors),
`statistics.py` (random numbers). Where MXNet's checks take a Symbol, these also take a
function of NDArrays or a Block.
"""

from __future__ import annotations

from typing import Any

from d2lmini.compat.test_utils.checks import (
    check_consistency,
    check_numeric_gradient,
    check_symbolic_backward,
    check_symbolic_forward,
    compare_ndarray_tuple,
    compare_optimizer,
    simple_forward,
)
from d2lmini.compat.test_utils.compare import (
    almost_equal,
    assert_allclose,
    assert_almost_equal,
    assert_almost_equal_ignore_nan,
    assert_almost_equal_with_err,
    checkShapes,
    default_atols,
    default_numeric_eps,
    default_rtols,
    effective_dtype,
    get_atol,
    get_etol,
    get_rtol,
    get_tolerance,
    get_tols,
    locationError,
    same,
    same_array,
)
from d2lmini.compat.test_utils.environment import (
    assert_exception,
    default_context,
    default_dtype,
    discard_stderr,
    download,
    environment,
    has_tvm_ops,
    is_aarch64_run,
    is_cd_run,
    is_op_runnable,
    list_gpus,
    retry,
    set_default_context,
)
from d2lmini.compat.test_utils.executors import (
    DummyIter,
    check_speed,
    numeric_grad,
    same_symbol_structure,
)
from d2lmini.compat.test_utils.samples import (
    assign_each,
    assign_each2,
    collapse_sum_like,
    create_2d_tensor,
    create_vector,
    get_identity_mat,
    get_identity_mat_batch,
    new_matrix_with_real_eigvals_2d,
    new_matrix_with_real_eigvals_nd,
    new_orthonormal_matrix_2d,
    new_sym_matrix_with_real_eigvals_2d,
    new_sym_matrix_with_real_eigvals_nd,
    np_reduce,
    rand_coord_2d,
    rand_ndarray,
    rand_shape_2d,
    rand_shape_3d,
    rand_shape_nd,
    random_arrays,
    random_sample,
    random_uniform_arrays,
)
from d2lmini.compat.test_utils.statistics import (
    chi_square_check,
    gen_buckets_probs_with_ppf,
    mean_check,
    var_check,
    verify_generator,
)

__all__ = [
    "DummyIter", "almost_equal", "assert_allclose", "assert_almost_equal",
    "assert_almost_equal_ignore_nan", "assert_almost_equal_with_err", "assert_exception",
    "assign_each", "assign_each2", "checkShapes", "check_consistency", "check_numeric_gradient",
    "check_speed", "check_symbolic_backward", "check_symbolic_forward", "chi_square_check",
    "collapse_sum_like", "compare_ndarray_tuple", "compare_optimizer", "create_2d_tensor",
    "create_vector", "default_atols", "default_context", "default_dtype", "default_numeric_eps",
    "default_rtols", "discard_stderr", "download", "effective_dtype", "environment",
    "gen_buckets_probs_with_ppf", "get_atol", "get_etol", "get_identity_mat",
    "get_identity_mat_batch", "get_rtol", "get_tolerance", "get_tols", "has_tvm_ops",
    "is_aarch64_run", "is_cd_run", "is_op_runnable", "list_gpus", "locationError", "mean_check",
    "new_matrix_with_real_eigvals_2d", "new_matrix_with_real_eigvals_nd",
    "new_orthonormal_matrix_2d", "new_sym_matrix_with_real_eigvals_2d",
    "new_sym_matrix_with_real_eigvals_nd", "np_reduce", "numeric_grad", "rand_coord_2d",
    "rand_ndarray", "rand_shape_2d", "rand_shape_3d", "rand_shape_nd", "random_arrays",
    "random_sample", "random_uniform_arrays", "retry", "same", "same_array",
    "same_symbol_structure", "set_default_context", "simple_forward", "var_check",
    "verify_generator",
]  # fmt: skip

_DATA = "get_bz2_data get_cifar10 get_mnist get_mnist_iterator get_mnist_ubyte get_zip_data"


def __getattr__(name: str) -> Any:
    if name in _DATA.split():
        raise AttributeError(
            f"test_utils.{name} is left out of d2lmini, as all that fetches data for tests; "
            "d2l.load_data_digits() needs no network, gluon.data.vision reads MNIST and CIFAR10"
        )
    if "sparse" in name or "csr" in name:
        raise AttributeError(
            f"test_utils.{name} is left out of d2lmini, as all of MXNet's sparse arrays"
        )
    raise AttributeError(f"test_utils has no {name!r}; it has {', '.join(__all__)}")

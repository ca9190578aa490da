"""What stands for a part of MXNet that d2lmini leaves out: an object that raises when it is used.

>>> from d2lmini.compat.left_out import stand_in
>>> imread = stand_in("image").imread    # as at the top of a program that may not need it
>>> imread("cat.jpg")
Traceback (most recent call last):
NotImplementedError: mxnet.image.imread is left out of d2lmini, as all of MXNet's image operations

A program that imports a missing name without using it runs; a program that needs the name gets an
error with the name, the reason and what to do instead, at the line that uses it. The error is a
NotImplementedError and not an MXNetError, because programs catch MXNetError to go on without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn

from d2lmini import left_out
from d2lmini.base import missing_attribute

#: The rows of the core, and those of the modules that only old programs import. A program that
#: imports what MXNet's files import from its C library has no use for it here.
LEFT_OUT = {
    **left_out.LEFT_OUT,
    "as all of MXNet's contributed extras, which few programs use": """
        contrib.autograd contrib.io contrib.quantization contrib.tensorboard
        contrib.svrg_optimization optimizer.contrib contrib.amp.lists.*""",
    "d2lmini writes ONNX files and does not read them; onnxruntime runs them": """
        onnx2mx import_model* import_to_gluon* get_model_metadata*""",
    "as all of MXNet's custom operators; d2lmini.ops.core.op makes operators in Python": """
        operator rtc library tvmop torch""",
    "as is the interface before Gluon; gluon.Trainer and a loop do the same": """
        callback executor_manager model module mod mon rnn
        BatchEndParam FeedForward DataParallelExecutorManager LogValidationMetricsCallback
        SKLEARN_INSTALLED""",
    "as are MXNet's parameter servers; kvstore 'dist_sync' needs none":
        "kvstore_server KVStoreServer",
    "gluon.data.DataLoader fetches batches ahead": "PrefetchingIter",
    "itertools.cycle and islice make epochs of any length": "ResizeIter",
    "np.loadtxt reads CSV files, NDArrayIter makes batches of them": "CSVIter",
    "sklearn.datasets.load_svmlight_file reads such files": "LibSVMIter",
    "gluon.data.vision.MNIST reads the same files": "MNISTIter",
    "gluon.data.vision.ImageFolderDataset reads image files": "Image*Iter*",
    "numpy.testing and pytest do what MXNet's helpers for its own tests do": "test_utils",
    "as few old programs use it": """
        DataLoaderV1 MXDataIter TestStore convert_bucketing_module adagrad_update gs_retain
        *contrib.*uniform bfloat16""",
    "as are the parts of MXNet that serve its own binary": """
        api cython error libinfo log misc notebook registry space *_doc numpy_dispatch_protocol
        numpy_op_fallback numpy_op_signature
        check_call classproperty with_metaclass c_* ctypes2* c2pyerror MXCallbackList
        add_fileline_to_docstring data_dir* error_types get_last_ffi_error mx_float* register_error
        *indexing_* get_oshape_* check_boolean_* DL* set_module wrap_np_*
        np_ufunc_legal_option tensor_types backward_* ConnectionWrapper Queue SimpleQueue
        fetcher_loop_v1 worker_loop_v1 re*_ndarray""",
}  # fmt: skip


def _raise(self: Missing, *args: Any, **kwargs: Any) -> NoReturn:
    raise NotImplementedError(self.__doc__)


class Missing(ModuleType):
    """Stands for a missing module, class or function. Access to it, and to names below it, is free;
    calling it, deriving from it, or computing with it raises. Nothing is an instance of it."""

    def __init__(self, name: str, reason: str):
        super().__init__(name, f"{name} is left out of d2lmini, {reason}")
        self.__path__: list[str] = []  # a package: programs import modules below it
        self.reason = reason

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self.__name__}.{name}", self.reason)

    def __instancecheck__(self, value: object) -> bool:
        return False

    def __subclasscheck__(self, cls: type) -> bool:
        return False

    def __repr__(self) -> str:
        return f"<{self.__doc__}>"

    __call__ = __mro_entries__ = __enter__ = __iter__ = __bool__ = __len__ = _raise
    __getitem__ = __setitem__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = (
        _raise
    )
    __truediv__ = __rtruediv__ = __matmul__ = __pow__ = __neg__ = __lt__ = __gt__ = _raise
    __float__ = __int__ = __index__ = __array__ = _raise


def stand_in(path: str) -> Missing | None:
    """What stands for a name of MXNet with this path below `mxnet`; None if no row has the name."""
    reason = left_out.reason_of(path, LEFT_OUT)
    return None if reason is None else Missing(f"mxnet.{path}", reason)


def find_stand_in(where: str, name: str, names: Sequence[str] = ()) -> Missing:
    """What stands for a name that a module does not have; AttributeError if no row has the name."""
    found = None if name.startswith("__") else stand_in(f"{where}.{name}")
    if found is None:
        raise missing_attribute(where, name, names)
    return found

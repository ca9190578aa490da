"""`d2l.mxnet`: the helpers of the book's second edition, for its programs.

    from d2l import mxnet as d2l                 # after d2lmini.install_as_mxnet(), or with `run`
    from mxnet import np, npx
    npx.set_np()

Names and signatures are the book's; d2lmini computes, on `np.ndarray`s. Data that the book
downloads is read from a local file where there is one; without its files Fashion-MNIST is replaced
by the digits that come with scikit-learn.

    classes.py   Module, DataModule, Trainer, Classifier, ProgressBoard; LinearRegression, its data
    training.py  Timer, Benchmark, Accumulator, Animator, train_ch6, train_ch13, ...
    ../shared.py what both editions have: Residual, sgd, plot, download, ...

Helpers of the chapters on detection, optimizers, recommenders and texts are left out.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Imported at first use: files of `d2lmini.compat.books`, and the names in them.
_FILES = {
    "second.classes": """
        Classifier DataModule FashionMNIST HyperParameters LinearRegression LinearRegressionScratch
        Module ProgressBoard SGD SyntheticRegressionData Trainer add_to_class
        get_dataloader_workers load_data_fashion_mnist show_images synthetic_data""",
    "second.training": """
        Accumulator Animator Benchmark Timer accuracy cpu evaluate_accuracy evaluate_accuracy_gpu
        gpu grad_clipping num_gpus split_batch train_batch_ch13 train_ch3 train_ch6 train_ch13
        train_epoch_ch3 try_all_gpus try_gpu""",
    "first": "get_fashion_mnist_labels",
    "shared": """
        DATA_HUB DATA_URL Residual bbox_to_rect corr2d download evaluate_accuracy_gpus linreg
        load_array plot resnet18 set_axes set_figsize sgd squared_loss use_svg_display""",
}
_LAZY = {
    name: f"d2lmini.compat.books.{file}" for file, names in _FILES.items() for name in names.split()
}

__all__ = ["nn_Module", "plt", *_LAZY]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
    elif name == "plt":
        value = import_module("matplotlib.pyplot")
    elif name == "nn_Module":
        value = import_module("d2lmini.gluon.nn").Block
    else:
        raise AttributeError(
            f"d2l.mxnet has no {name!r}, and helpers of chapters on detection, optimizers, "
            f"recommenders and texts are left out; it has {', '.join(sorted(__all__))}"
        )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""`d2l.mxnet`: the helpers of the book's second edition, for its programs.

    from d2l import mxnet as d2l                 # after d2lmini.install_as_mxnet(), or with `run`
    from mxnet import np, npx
    npx.set_np()

Names and signatures are the book's; d2lmini computes, on `np.ndarray`s. Data that the book
downloads is read from a local file where there is one (`../files.py`); without its files
Fashion-MNIST is replaced by the digits that come with scikit-learn.

    oop.py       HyperParameters, ProgressBoard, Module, DataModule, Trainer, Classifier
    data.py      SyntheticRegressionData, FashionMNIST, ...
    training.py  Timer, Benchmark, Accumulator, Animator, train_ch6, train_ch13, ...
    models.py    LinearRegression, LinearRegressionScratch, ...
    plots.py     plot, show_images, ...
    arrays.py    tensor, arange, matmul, ... : functions that have a name of their own in the book
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from d2lmini.compat.books.second.arrays import FUNCTIONS

# Imported at first use: files of `d2lmini.compat.books`, and the names in them.
_FILES = {
    "second.oop": """Classifier DataModule HyperParameters Module ProgressBoard SGD Trainer
        add_to_class""",
    "second.data": """FashionMNIST SyntheticRegressionData get_dataloader_workers
        load_data_fashion_mnist synthetic_data""",
    "second.training": """Accumulator Animator Benchmark Timer accuracy cpu evaluate_accuracy
        evaluate_accuracy_gpu gpu grad_clipping num_gpus split_batch
        train_batch_ch13 train_ch3 train_ch6 train_ch13 train_epoch_ch3 try_all_gpus try_gpu""",
    "second.models": "LinearRegression LinearRegressionScratch check_len check_shape",
    "second.plots": "plot set_axes show_images",
    "first": "get_fashion_mnist_labels",
    "loops": "evaluate_accuracy_gpus load_array sgd",
    "models": "Residual corr2d linreg resnet18 squared_loss",
    "figures": "bbox_to_rect set_figsize use_svg_display",
    "files": "DATA_HUB DATA_URL download",
}
_LAZY = {
    name: f"d2lmini.compat.books.{file}" for file, names in _FILES.items() for name in names.split()
}

# Helpers of chapters that are out of scope.
_LEFT_OUT = """
    AddNorm AdditiveAttention AttentionDecoder Decoder DotProductAttention Encoder EncoderDecoder
    GRU MTFraEng download_all download_extract evaluate_loss extract get_data_ch11 show_trace_2d
    train_2d train_ch11 train_concise_ch11 MultiHeadAttention PositionWiseFFN PositionalEncoding
    RNN RNNLM RNNLMScratch RNNScratch ResNeXtBlock Seq2Seq Seq2SeqEncoder TimeMachine
    TransformerEncoderBlock Vocab bleu load_data_time_machine masked_softmax show_heatmaps
    show_list_len_pair_hist tokenize
    truncate_pad
    BERTEncoder BERTModel BPRLoss CTRDataset TokenEmbedding VOCSegDataset VOC_CLASSES VOC_COLORMAP
    box_center_to_corner box_corner_to_center box_iou get_tokens_and_segments load_data_bananas
    load_data_imdb load_data_ml100k load_data_ptb load_data_snli load_data_voc load_data_wiki
    multibox_detection multibox_prior multibox_target nms predict_sentiment read_data_ml100k
    show_bboxes split_and_load_ml100k split_data_ml100k train_recsys_rating""".split()

globals().update(FUNCTIONS)
__all__ = ["nn_Module", "plt", *FUNCTIONS, *_LAZY]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(import_module(_LAZY[name]), name)
    elif name == "plt":
        value = import_module("matplotlib.pyplot")
    elif name == "nn_Module":
        value = import_module("d2lmini.gluon.nn").Block
    elif name in _LEFT_OUT:
        raise AttributeError(
            f"d2l.{name} is left out of d2lmini, as are the book's chapters on detection, "
            "optimizers, recommenders and texts"
        )
    else:
        raise AttributeError(f"d2l.mxnet has no {name!r}; it has {', '.join(sorted(__all__))}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

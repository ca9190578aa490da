"""`d2l.mxnet`: the helpers of the book's second edition, for its programs.

    from d2l import mxnet as d2l                 # after d2lmini.install_as_mxnet(), or with `run`
    from mxnet import np, npx
    npx.set_np()

Names and signatures are the book's; d2lmini computes, on `np.ndarray`s. Data that the book
downloads is read from a local file where there is one (`files.py`); without its files
Fashion-MNIST is replaced by the digits that come with scikit-learn.

    hyperparameters.py  HyperParameters, add_to_class
    oop.py       ProgressBoard, Module, DataModule, Trainer, Classifier
    data.py      SyntheticRegressionData, FashionMNIST, load_array, ...
    training.py  Timer, Benchmark, Accumulator, train_ch6, ...
    devices.py   try_gpu, split_batch, train_ch13
    models.py    LinearRegression, Residual, resnet18, RNN, ...
    text.py      Vocab, TimeMachine, tokenize, ...
    attention.py MultiHeadAttention, PositionalEncoding, ...
    plots.py     plot, show_images, show_heatmaps, ...
    arrays.py    tensor, arange, matmul, ... : functions that have a name of their own in the book
    files.py     DATA_HUB, download, extract
"""

from __future__ import annotations

import importlib
from typing import Any

# Imported at first use: the file of this folder, and the names in it.
_FILES = {
    "hyperparameters": "HyperParameters add_to_class",
    "oop": "Classifier DataModule Module ProgressBoard Trainer",
    "data": """FashionMNIST SyntheticRegressionData get_data_ch11 get_dataloader_workers
        get_fashion_mnist_labels load_array load_data_fashion_mnist synthetic_data""",
    "training": """Accumulator Animator Benchmark SGD Timer accuracy evaluate_accuracy
        evaluate_accuracy_gpu evaluate_loss grad_clipping linreg sgd show_trace_2d squared_loss
        train_2d train_ch3 train_ch6 train_ch11 train_concise_ch11 train_epoch_ch3""",
    "devices": """cpu evaluate_accuracy_gpus gpu num_gpus split_batch train_batch_ch13
        train_ch13 try_all_gpus try_gpu""",
    "models": """GRU LinearRegression LinearRegressionScratch RNN RNNLM RNNLMScratch RNNScratch
        ResNeXtBlock Residual check_len check_shape corr2d resnet18""",
    "text": """MTFraEng TimeMachine Vocab bleu load_data_time_machine tokenize truncate_pad""",
    "attention": """AdditiveAttention AttentionDecoder Decoder DotProductAttention Encoder
        EncoderDecoder MultiHeadAttention PositionalEncoding PositionWiseFFN Seq2Seq
        Seq2SeqEncoder AddNorm TransformerEncoderBlock masked_softmax""",
    "plots": """bbox_to_rect plot set_axes set_figsize show_heatmaps show_images
        show_list_len_pair_hist use_svg_display""",
    "arrays": """abs arange argmax astype batch_matmul concat cos cosh exp expand_dims eye float32
        int32 int64 linspace log matmul meshgrid normal numpy ones ones_like rand randn reduce_mean
        reduce_sum repeat reshape sigmoid sin sinh size stack swapaxes tanh tensor to transpose
        zeros zeros_like""",
    "files": """DATA_HUB DATA_URL download download_all download_extract extract""",
}
_LAZY = {name: f"{__name__}.{file}" for file, names in _FILES.items() for name in names.split()}

# Helpers of chapters that are out of scope: images with boxes, recommenders, texts to download.
_LEFT_OUT = """
    BERTEncoder BERTModel BPRLoss CTRDataset TokenEmbedding VOCSegDataset VOC_CLASSES VOC_COLORMAP
    box_center_to_corner box_corner_to_center box_iou get_tokens_and_segments load_data_bananas
    load_data_imdb load_data_ml100k load_data_ptb load_data_snli load_data_voc load_data_wiki
    multibox_detection multibox_prior multibox_target nms predict_sentiment read_data_ml100k
    show_bboxes split_and_load_ml100k split_data_ml100k train_recsys_rating""".split()

__all__ = ["nn_Module", "plt", *_LAZY]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
    elif name == "plt":
        value = importlib.import_module("matplotlib.pyplot")
    elif name == "nn_Module":
        value = importlib.import_module("d2lmini.gluon.nn").Block
    elif name in _LEFT_OUT:
        raise AttributeError(
            f"d2l.{name} is left out of d2lmini, as are the book's chapters on detection, "
            "recommenders and texts to download"
        )
    else:
        raise AttributeError(f"d2l.mxnet has no {name!r}; it has {', '.join(sorted(__all__))}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""The book's classes for models, data and training, which a chapter extends piece by piece.

    class Net(d2l.Classifier): ...
    trainer = d2l.Trainer(max_epochs=10, num_gpus=1)
    trainer.fit(Net(lr=0.1), d2l.FashionMNIST(batch_size=256))

A `Module` says what a step is, a `DataModule` where batches come from, the `Trainer` repeats.
Arguments of their constructors become attributes:

>>> class Model(HyperParameters):
...     def __init__(self, lr, steps=2):
...         self.save_hyperparameters(ignore=["steps"])
>>> Model(0.1).lr, hasattr(Model(0.1), "steps")
(0.1, False)
>>> data = SyntheticRegressionData(w=np.array([2, -3.4]), b=4.2)
>>> X, y = next(iter(data.train_dataloader()))
>>> X.shape, y.shape, LinearRegressionScratch(num_inputs=2, lr=0.03)(X).shape
((32, 2), (32, 1), (32, 1))

`FashionMNIST` reads its files where they are (~/.mxnet/datasets/fashion-mnist) or can be fetched;
otherwise it warns and takes the handwritten digits that come with scikit-learn, resized.
"""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from d2lmini import autograd, gluon, init, np, npx
from d2lmini.compat.books import first, shared
from d2lmini.d2l.helpers import digits
from d2lmini.gluon import nn


def add_to_class(Class: type) -> Callable[[Any], None]:
    """A decorator that makes a function a method of `Class`."""
    return lambda function: setattr(Class, function.__name__, function)


class HyperParameters:
    """A class whose constructor's arguments become attributes."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def save_hyperparameters(self, ignore: Sequence[str] = ()) -> None:
        """Store the arguments and variables of the calling constructor as attributes, and all
        in `hparams`; those in `ignore` and names that begin with _ are left out."""
        frame = inspect.currentframe()
        assert frame is not None and frame.f_back is not None
        self.hparams = {
            name: value
            for name, value in frame.f_back.f_locals.items()
            if name not in {"self", *ignore} and not name.startswith("_")
        }
        for name, value in self.hparams.items():
            setattr(self, name, value)


class Point(NamedTuple):
    """One value of a curve."""

    x: float
    y: float


class ProgressBoard(HyperParameters):
    """Curves that grow while a program runs; drawn in a notebook, kept in `data` everywhere."""

    def __init__(
        self, xlabel: str | None = None, ylabel: str | None = None, xlim: Any = None,
        ylim: Any = None, xscale: str = "linear", yscale: str = "linear",
        ls: Sequence[str] = ("-", "--", "-.", ":"),
        colors: Sequence[str] = ("C0", "C1", "C2", "C3"), fig: Any = None, axes: Any = None,
        figsize: tuple[float, float] = (3.5, 2.5), display: bool = True,
    ):  # fmt: skip
        self.save_hyperparameters()
        self.raw_points: dict[str, list[Point]] = defaultdict(list)
        self.data: dict[str, list[Point]] = {}

    def draw(self, x: float, y: float, label: str, every_n: int = 1) -> None:
        """Add a point to the curve `label`: the mean of each `every_n` values. The figure is drawn
        anew if `display` is set and the program runs in a notebook."""
        points = self.raw_points[label]
        points.append(Point(x, y))
        if len(points) < every_n:
            return
        mean = Point(*(sum(values) / len(points) for values in zip(*points)))
        self.data.setdefault(label, []).append(mean)
        points.clear()
        if self.display:
            curves = [
                (*zip(*points), {"linestyle": style, "color": color})
                for points, style, color in zip(self.data.values(), self.ls, self.colors)
            ]
            shared.redraw(self, curves, list(self.data), grid=False)


class SGD(HyperParameters):
    """Stochastic gradient descent on a list of arrays."""

    def __init__(self, params: Any, lr: float):
        self.save_hyperparameters()

    def step(self, _: int = 1) -> None:
        """One step, in place."""
        shared.sgd(self.params, self.lr, 1)


class Module(nn.Block, HyperParameters):
    """A model: the net, its loss, its optimizer."""

    def __init__(self, plot_train_per_epoch: int = 2, plot_valid_per_epoch: int = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.save_hyperparameters(ignore=["kwargs"])
        self.board = ProgressBoard()

    def loss(self, y_hat: Any, y: Any) -> Any:
        """The loss of predictions; a model defines it."""
        raise NotImplementedError(f"{type(self).__name__} defines no loss(y_hat, y)")

    def forward(self, X: Any) -> Any:
        """The predictions of `net`."""
        assert hasattr(self, "net"), "Neural network is defined"
        return self.net(X)

    def plot(self, key: str, value: Any, train: bool) -> None:
        """Add a value to the curve train_KEY or val_KEY; waits for it."""
        assert hasattr(self, "trainer"), "Trainer is not inited"
        self.board.xlabel = "epoch"  # type: ignore[attr-defined]
        trainer = self.trainer
        if train:
            x = trainer.train_batch_idx / trainer.num_train_batches
            n = trainer.num_train_batches / self.plot_train_per_epoch
        else:
            x = trainer.epoch + 1
            n = trainer.num_val_batches / self.plot_valid_per_epoch
        label = ("train_" if train else "val_") + key
        self.board.draw(x, float(value), label, every_n=max(1, int(n)))

    def training_step(self, batch: Sequence[Any]) -> Any:
        """The loss of a batch (inputs, then the labels); draws it."""
        l = self.loss(self(*batch[:-1]), batch[-1])
        self.plot("loss", l, train=True)
        return l

    def validation_step(self, batch: Sequence[Any]) -> None:
        """Draw the loss of a batch."""
        self.plot("loss", self.loss(self(*batch[:-1]), batch[-1]), train=False)

    def configure_optimizers(self) -> Any:
        """The optimizer: SGD with rate `lr`, of the Parameters or of the arrays of the model."""
        params = self.parameters()
        if isinstance(params, list):
            return SGD(params, self.lr)
        return gluon.Trainer(params, "sgd", {"learning_rate": self.lr})

    def get_scratch_params(self) -> list[Any]:
        """The arrays among the attributes of this model and of its parts."""
        return [getattr(model, name) for model, name in self._scratch_params()]

    def set_scratch_params_device(self, device: Any) -> None:
        """Move the arrays among the attributes to a device."""
        for model, name in self._scratch_params():
            moved = getattr(model, name).as_in_ctx(device)
            moved.attach_grad()
            setattr(model, name, moved)

    def _scratch_params(self) -> Iterator[tuple[Module, str]]:
        """The places of these arrays; parts are attributes or in lists."""
        for name in dir(self):
            value = getattr(self, name, None)  # a name that is left out raises
            if isinstance(value, np.ndarray):
                yield self, name
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, Module):
                    yield from part._scratch_params()

    def parameters(self) -> Any:
        """The Parameters, or, if there are none, a list of the arrays."""
        params = self.collect_params()
        return params if params.keys() else self.get_scratch_params()


class DataModule(HyperParameters):
    """Data: batches for training and for validation."""

    def __init__(self, root: str = "../data", num_workers: int = 4):
        self.save_hyperparameters()

    def get_dataloader(self, train: bool) -> Any:
        """An iterable over batches; a data set defines it."""
        raise NotImplementedError(f"{type(self).__name__} defines no get_dataloader(train)")

    def train_dataloader(self) -> Any:
        """Batches for training."""
        return self.get_dataloader(train=True)

    def val_dataloader(self) -> Any:
        """Batches for validation."""
        return self.get_dataloader(train=False)

    def get_tensorloader(
        self, tensors: Sequence[Any], train: bool, indices: Any = slice(0, None)
    ) -> Any:
        """Batches of arrays, cut to `indices`; shuffled for training."""
        return shared.load_array([array[indices] for array in tensors], self.batch_size, train)


class Trainer(HyperParameters):
    """Repeats the steps of a Module on the batches of a DataModule."""

    def __init__(self, max_epochs: int, num_gpus: int = 0, gradient_clip_val: float = 0):
        self.save_hyperparameters()
        self.gpus = [npx.gpu(i) for i in range(min(num_gpus, npx.num_gpus()))]

    def prepare_data(self, data: Any) -> None:
        """Make the loaders and count their batches."""
        self.train_dataloader = data.train_dataloader()
        self.val_dataloader = data.val_dataloader()
        self.num_train_batches = len(self.train_dataloader)
        self.num_val_batches = len(self.val_dataloader) if self.val_dataloader is not None else 0

    def prepare_model(self, model: Any) -> None:
        """Tell the model its trainer, and move it to the GPU if there is one."""
        model.trainer = self
        model.board.xlim = [0, self.max_epochs]
        if self.gpus:
            model.collect_params().reset_ctx(self.gpus[0])
            model.set_scratch_params_device(self.gpus[0])
        self.model = model

    def prepare_batch(self, batch: Sequence[Any]) -> Sequence[Any]:
        """The batch on the device of the model."""
        return [array.as_in_context(self.gpus[0]) for array in batch] if self.gpus else batch

    def fit(self, model: Any, data: Any) -> None:
        """Train for `max_epochs`."""
        self.prepare_data(data)
        self.prepare_model(model)
        self.optim = model.configure_optimizers()
        self.epoch = self.train_batch_idx = self.val_batch_idx = 0
        # After the last epoch `epoch` keeps that epoch's number, as programs expect that go on.
        for epoch in range(self.max_epochs):
            self.epoch = epoch
            self.fit_epoch()

    def fit_epoch(self) -> None:
        """One pass over the batches for training, then one over those for validation."""
        for batch in self.train_dataloader:
            with autograd.record():
                loss = self.model.training_step(self.prepare_batch(batch))
            loss.backward()
            if self.gradient_clip_val > 0:
                self.clip_gradients(self.gradient_clip_val, self.model)
            self.optim.step(1)
            self.train_batch_idx += 1
        if self.val_dataloader is None:
            return
        for batch in self.val_dataloader:
            self.model.validation_step(self.prepare_batch(batch))
            self.val_batch_idx += 1

    def clip_gradients(self, grad_clip_val: float, model: Any) -> None:
        """Scale the gradients so that their common norm is at most `grad_clip_val`."""
        params = model.parameters()
        if not isinstance(params, list):
            params = [param.data() for param in params.values()]
        shared.grad_clipping(params, grad_clip_val)


class Classifier(Module):
    """A Module whose labels are classes: the loss is cross-entropy, validation shows accuracy."""

    def validation_step(self, batch: Sequence[Any]) -> None:
        """Draw loss and accuracy of a batch."""
        y_hat = self(*batch[:-1])
        self.plot("loss", self.loss(y_hat, batch[-1]), train=False)
        self.plot("acc", self.accuracy(y_hat, batch[-1]), train=False)

    def accuracy(self, Y_hat: Any, Y: Any, averaged: bool = True) -> Any:
        """The share of rows whose largest score is the right class; all comparisons unless
        `averaged`."""
        Y_hat = Y_hat.reshape((-1, Y_hat.shape[-1]))
        predicted = Y_hat.argmax(axis=1).astype(Y.dtype)
        compared = (predicted == Y.reshape(-1)).astype(np.float32)
        return compared.mean() if averaged else compared

    def loss(self, Y_hat: Any, Y: Any, averaged: bool = True) -> Any:
        """The cross-entropy of scores; one value for each row unless `averaged`."""
        Y_hat, Y = Y_hat.reshape((-1, Y_hat.shape[-1])), Y.reshape((-1,))
        l = gluon.loss.SoftmaxCrossEntropyLoss()(Y_hat, Y)
        return l.mean() if averaged else l

    def layer_summary(self, X_shape: tuple[int, ...]) -> None:
        """Print the shape that each layer of `net` makes of an input of this shape."""
        X = np.random.randn(*X_shape)
        for layer in self.net:
            X = layer(X)
            print(layer.__class__.__name__, "output shape:\t", X.shape)


# -- data ------------------------------------------------------------------------------------------


def get_dataloader_workers() -> int:
    """The number of workers for a DataLoader: none, since its threads need none."""
    return 0


def synthetic_data(w: Any, b: Any, num_examples: int, noise: float = 0.01) -> tuple[Any, Any]:
    """X and y = X w + b + noise, y as a column."""
    X = np.random.randn(num_examples, len(w))
    return X, np.dot(X, w.reshape((-1, 1))) + b + np.random.randn(num_examples, 1) * noise


class SyntheticRegressionData(DataModule):
    """Examples of a linear model with noise."""

    def __init__(
        self, w: Any, b: Any, noise: float = 0.01, num_train: int = 1000, num_val: int = 1000,
        batch_size: int = 32,
    ):  # fmt: skip
        super().__init__()
        self.save_hyperparameters()
        self.X, self.y = synthetic_data(w, b, num_train + num_val, noise)

    def get_dataloader(self, train: bool) -> Any:
        """Batches of the first `num_train` examples, or of the others."""
        places = slice(0, self.num_train) if train else slice(self.num_train, None)
        return self.get_tensorloader((self.X, self.y), train, places)


def _pictures(train: bool, resize: Any) -> Any:
    """A data set of Fashion-MNIST, or of digits if its files can't be had."""
    try:
        return first.read_fashion_mnist(train, resize)
    except ConnectionError as problem:
        warnings.warn(
            f"Fashion-MNIST is replaced by scikit-learn's handwritten digits. {problem}",
            stacklevel=4,
        )
    X_train, y_train, X_test, y_test = digits(resize[0])
    X, y = (X_train, y_train) if train else (X_test, y_test)
    return gluon.data.ArrayDataset(np.array(X), y.astype("int32"))


def show_images(
    imgs: Any, num_rows: int, num_cols: int, titles: Any = None, scale: float = 1.5
) -> Any:
    """Draw pictures in a grid."""
    return shared.show_images(imgs, num_rows, num_cols, scale, titles).flatten()


class FashionMNIST(DataModule):
    """Pictures of ten kinds of clothes, (N, 1, H, W) between 0 and 1, and their classes."""

    def __init__(self, batch_size: int = 64, resize: tuple[int, int] = (28, 28)):
        super().__init__()
        self.save_hyperparameters()
        self.train = _pictures(True, resize)
        self.val = _pictures(False, resize)

    def text_labels(self, indices: Iterable[Any]) -> list[str]:
        """The names of the classes."""
        return first.get_fashion_mnist_labels(indices)

    def get_dataloader(self, train: bool) -> Any:
        """Batches; shuffled for training."""
        data = self.train if train else self.val
        return gluon.data.DataLoader(data, self.batch_size, shuffle=train)

    def visualize(self, batch: Any, nrows: int = 1, ncols: int = 8, labels: Any = ()) -> None:
        """Draw the first pictures of a batch."""
        X, y = batch
        show_images(X.squeeze(1), nrows, ncols, titles=labels or self.text_labels(y))


def load_data_fashion_mnist(batch_size: int, resize: Any = None) -> tuple[Any, Any]:
    """Loaders for training and test; resize: the side length of the pictures, if another is
    wanted."""
    size = (resize, resize) if isinstance(resize, int) else tuple(resize or (28, 28))
    data = FashionMNIST(batch_size, size)
    return data.train_dataloader(), data.val_dataloader()


# -- models ----------------------------------------------------------------------------------------


class LinearRegressionScratch(Module):
    """Linear regression on arrays."""

    def __init__(self, num_inputs: int, lr: float, sigma: float = 0.01):
        super().__init__()
        self.save_hyperparameters()
        self.w = np.random.normal(0, sigma, (num_inputs, 1))
        self.b = np.zeros(1)
        self.w.attach_grad()
        self.b.attach_grad()

    def forward(self, X: Any) -> Any:
        return shared.linreg(X, self.w, self.b)

    def loss(self, y_hat: Any, y: Any) -> Any:
        return shared.squared_loss(y_hat, y).mean()


class LinearRegression(Module):
    """Linear regression by Gluon's layer."""

    def __init__(self, lr: float):
        super().__init__()
        self.save_hyperparameters()
        self.net: Any = nn.Dense(1)
        self.net.initialize(init.Normal(sigma=0.01))

    def loss(self, y_hat: Any, y: Any) -> Any:
        return gluon.loss.L2Loss()(y_hat, y).mean()

    def get_w_b(self) -> tuple[Any, Any]:
        """Weight and bias."""
        return self.net.weight.data(), self.net.bias.data()

"""gluon.data.vision: file formats that may be damaged, datasets, transforms."""

from __future__ import annotations

import gzip
import io
import struct
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from d2lmini import MXNetError, autograd, engine, nd, random
from d2lmini.gluon import data as gdata
from d2lmini.gluon.data import vision
from d2lmini.gluon.data.vision import datasets
from d2lmini.gluon.data.vision import transforms as T

rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 256, (7, 28, 28)).astype("uint8")
LABELS = rng.integers(0, 10, 7).astype("uint8")


def as_idx(array: np.ndarray, code: int = 8) -> bytes:
    """An IDX file of `array` (big-endian already)."""
    head = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.tobytes()


def write(path: Path, content: bytes) -> str:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


# -- IDX -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x-ubyte", "x-ubyte.gz"])
def test_idx_files_of_bytes(tmp_path: Path, name: str):
    array = rng.integers(0, 100, (3, 4, 5)).astype("uint8")
    got = datasets.read_idx(write(tmp_path / name, as_idx(array)))
    assert got.dtype == array.dtype and np.array_equal(got, array)
    got[0, 0, 0] = 1  # one's own memory


GOOD = as_idx(IMAGES[:2])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an IDX file of bytes: it begins with , expected 00 00 08"),
        (b"\x89PNG\r\n", "not an IDX file of bytes: it begins with 89 50 4e 47"),
        (b"\0\0\x07\x01" + GOOD[4:], "not an IDX file"),
        (b"\0\0\x08\x05" + GOOD[4:], "01 to 04 axes"),
        (GOOD[:9], "cut short of"),
        (GOOD[:-1], "is cut short of the 1568 bytes"),
        (GOOD + b"x", "goes on after the 1568 bytes"),
        (bytes([0, 0, 8, 3]) + b"\xff" * 12 + b"abc", "more than the file can hold"),
        (b"\0\0\x0e\x01" + GOOD[4:], "not an IDX file of bytes"),
        (bytes([0, 0, 8, 1]) + struct.pack(">I", 1 << 30), "more than the file can hold"),
    ],
)
@pytest.mark.parametrize("name", ["damaged", "damaged.gz"])
def test_damaged_idx_files_are_refused(tmp_path: Path, name: str, content: bytes, words: str):
    path = write(tmp_path / name, content)
    plain_only = {"short of the 1568 bytes", "more than the file can hold"}
    with pytest.raises(MXNetError, match="damaged") as caught:
        datasets.read_idx(path)
    if name == "damaged" and any(w in words for w in plain_only):
        # Without gzip the file's size says so before anything is read.
        assert "more than the file can hold" in str(caught.value) or "cut short" in str(
            caught.value
        )
    else:
        assert caught.match(words)


# -- datasets --------------------------------------------------------------------------------------


@pytest.fixture
def mnist_root(tmp_path: Path) -> str:
    for part, n in (("train", 7), ("t10k", 3)):
        write(tmp_path / f"{part}-images-idx3-ubyte.gz", as_idx(IMAGES[:n]))
        write(tmp_path / f"{part}-labels-idx1-ubyte.gz", as_idx(LABELS[:n]))
    return str(tmp_path)


own_files = pytest.mark.filterwarnings("ignore:.*is not the published file:UserWarning")


@own_files
@pytest.mark.parametrize("kind", [vision.MNIST, vision.FashionMNIST])
def test_mnist_from_local_files(mnist_root: str, kind):
    train, test = kind(root=mnist_root), kind(mnist_root, train=False)
    assert len(train) == 7 and len(test) == 3
    image, label = train[2]
    assert image.shape == (28, 28, 1) and image.dtype == np.uint8
    assert isinstance(label, np.int32) and label == LABELS[2]
    assert np.array_equal(image.asnumpy()[..., 0], IMAGES[2])
    X, y = train[0:5]
    assert X.shape == (5, 28, 28, 1) and isinstance(y, np.ndarray) and y.dtype == np.int32
    X, y = next(iter(gdata.DataLoader(train, 4)))
    assert (X.shape, X.dtype, y.dtype) == ((4, 28, 28, 1), np.uint8, np.int32)
    pairs = kind(mnist_root, transform=lambda x, y: (x.astype("float32"), int(y) + 10))
    assert pairs[1][1] == LABELS[1] + 10 and next(iter(gdata.DataLoader(pairs, 2)))[0].ndim == 4


def test_other_files_than_the_published_ones_are_used_with_a_warning(mnist_root: str):
    with pytest.warns(UserWarning) as caught:
        vision.MNIST(mnist_root)
    assert [w.filename for w in caught] == [__file__] * 2
    for name, warning in zip(("images-idx3", "labels-idx1"), caught):
        assert f"train-{name}-ubyte.gz is not the published file" in str(warning.message)
    for path in Path(mnist_root).glob("*.gz"):  # unpacked files serve as well, unchecked
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert len(vision.MNIST(mnist_root)) == 7


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (vision.MNIST, ["train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz"]),
        (vision.CIFAR10, ["cifar-10-binary.tar.gz", "data_batch_1.bin", "data_batch_5.bin"]),
    ],
)
def test_without_a_network_the_error_says_what_to_put_where(tmp_path, monkeypatch, kind, names):
    asked = []

    def download(url, path=None, sha1_hash=None, **_):
        asked.append((url, path, sha1_hash))
        raise ConnectionError("no route to host")

    monkeypatch.setattr(datasets, "download", download)
    monkeypatch.setenv("MXNET_GLUON_REPO", "https://mirror.example/")
    root = tmp_path / "new"
    with pytest.raises(ConnectionError, match="the download failed: no route to host") as caught:
        kind(root=str(root))
    for words in [*names, str(root), "root=", "load_data_digits"]:
        assert words in str(caught.value)
    ((url, path, sha1),) = asked
    name = names[0].split(",")[0]
    assert url == f"https://mirror.example/gluon/dataset/{kind.name}/{name}"
    assert path == str(root) and len(sha1) == 40


def cifar_rows(n: int) -> np.ndarray:
    return rng.integers(0, 10, (n, 1 + 3072)).astype("uint8")


@own_files
def test_cifar_from_files_and_from_the_archive(tmp_path: Path):
    parts = {f"data_batch_{i}.bin": cifar_rows(2) for i in range(1, 6)}
    parts["test_batch.bin"] = cifar_rows(3)
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as tar:
        for name, rows in {**parts, "../evil.bin": cifar_rows(1)}.items():
            member = tarfile.TarInfo(name if ".." in name else f"cifar-10-batches-bin/{name}")
            member.size = rows.nbytes
            tar.addfile(member, io.BytesIO(rows.tobytes()))
    train, test = vision.CIFAR10(str(tmp_path)), vision.CIFAR10(str(tmp_path), train=False)
    assert len(train) == 10 and len(test) == 3
    image, label = train[3]  # the second row of the second file
    row = parts["data_batch_2.bin"][1]
    assert isinstance(label, np.int32) and label == row[0]
    assert image.shape == (32, 32, 3) and image.dtype == np.uint8
    assert np.array_equal(image.asnumpy(), row[1:].reshape(3, 32, 32).transpose(1, 2, 0))
    assert {p.name for p in tmp_path.iterdir()} == {*parts, "cifar-10-binary.tar.gz"}
    assert not (tmp_path.parent / "evil.bin").exists()


@own_files
def test_damaged_cifar_files(tmp_path: Path):
    (tmp_path / "test_batch.bin").write_bytes(b"x" * 3074)
    with pytest.raises(MXNetError, match="3074 bytes are not a multiple of the row size 3073"):
        vision.CIFAR10(str(tmp_path), train=False)
    archive = tmp_path / "cifar-10-binary.tar.gz"
    archive.write_bytes(b"no archive")
    with pytest.raises(MXNetError, match="the archive cannot be read"):
        vision.CIFAR10(str(tmp_path))
    with tarfile.open(archive, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("train.txt"))
    with pytest.raises(MXNetError, match=r"there is no data_batch_1\.bin in this archive"):
        vision.CIFAR10(str(tmp_path))
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MXNetError, match="the archive cannot be read"):
        vision.CIFAR10(str(tmp_path))


@pytest.fixture
def folders(tmp_path: Path) -> str:
    Image = pytest.importorskip("PIL.Image")
    for kind, name, shape in (("cat", "b.png", (4, 5, 3)), ("cat", "a.JPG", (6, 4, 3)),
                              ("ant", "c.png", (3, 3))):  # fmt: skip
        (tmp_path / kind).mkdir(exist_ok=True)
        pixels = np.full(shape, 100, "uint8")
        pixels[0, 0] = 200
        Image.fromarray(pixels).save(tmp_path / kind / name)
    return str(tmp_path)


def test_image_folders(folders: str):
    data = vision.ImageFolderDataset(folders)
    assert data.synsets == ["ant", "cat"] and len(data) == 3
    assert [Path(p).name for p, _ in data.items] == ["c.png", "a.JPG", "b.png"]
    assert [data[i][1] for i in range(3)] == [0, 1, 1]
    image = data[2][0]
    assert image.shape == (4, 5, 3) and image.dtype == np.uint8
    assert image[0, 0].asnumpy().tolist() == [200] * 3 and image[1, 1, 1].asscalar() == 100
    grey = vision.ImageFolderDataset(folders, flag=0, transform=lambda x, y: (x, y + 10))
    assert grey[0][0].shape == (3, 3, 1) and grey[2][1] == 11
    (Path(folders) / "cat" / "notes.txt").write_text("x")
    (Path(folders) / "list.csv").write_text("x")
    with pytest.warns(UserWarning) as caught:
        assert len(vision.ImageFolderDataset(folders)) == 3
    assert ["notes.txt" in str(w.message) for w in caught].count(True) == 1
    assert any("list.csv, which is not a directory" in str(w.message) for w in caught)


def test_without_pillow_the_error_says_so(folders: str, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"a\.JPG needs Pillow: pip install pillow"):
        vision.ImageFolderDataset(folders)[1]


# -- transforms ------------------------------------------------------------------------------------

COLOUR = rng.integers(0, 256, (6, 8, 3)).astype("uint8")


def picture(array: np.ndarray = COLOUR) -> nd.NDArray:
    return nd.array(array, dtype=array.dtype)


def test_compose_takes_blocks_and_functions():
    steps = T.Compose([T.Resize(4), lambda x: x + 1, T.ToTensor()])
    y = steps(picture())
    assert y.shape == (3, 4, 4) and len(steps) == 3
    assert np.array_equal(y.asnumpy(), T.ToTensor()(T.Resize(4)(picture()) + 1).asnumpy())
    steps.hybridize()
    assert np.array_equal(steps(picture()).asnumpy(), y.asnumpy())
    assert T.Compose([])(y) is y


@pytest.mark.parametrize("width, height", [(5, 4), (17, 6), (3, 13), (8, 6)])
def test_resize_is_linear_between_the_centres_of_pixels(width, height):
    def stretched(row: np.ndarray, size: int) -> np.ndarray:
        n = len(row)
        return np.interp((np.arange(size) + 0.5) * n / size - 0.5, range(n), row)

    image = rng.random((6, 8, 3))
    expected = np.apply_along_axis(stretched, 0, image, height)
    expected = np.apply_along_axis(stretched, 1, expected, width)
    found = T.Resize((width, height))(picture(image.astype("float32"))).asnumpy()
    assert np.allclose(found, expected, atol=1e-6)
    rounded = T.Resize((width, height))(picture((255 * image).astype("uint8"))).asnumpy()
    assert abs(rounded - 255 * expected).max() <= 1.5  # half of it is from the picture's rounding


BATCHES = [
    T.ToTensor(), T.Resize(5), T.Resize((5, 9)), T.CenterCrop(4),
    T.Resize(7, keep_ratio=True), T.Compose([T.ToTensor(), T.Normalize(0.3, 0.2)]),
]  # fmt: skip


@pytest.mark.parametrize("transform", BATCHES, ids=lambda t: type(t).__name__)
def test_several_images_at_once(transform):
    one, other = COLOUR, COLOUR[::-1].copy()
    both = transform(picture(np.stack([one, other]))).asnumpy()
    assert np.array_equal(both[0], transform(picture(one)).asnumpy())
    assert np.array_equal(both[1], transform(picture(other)).asnumpy())


@pytest.mark.parametrize(
    ("transform", "x", "words"),
    [
        (T.ToTensor(), nd.ones((3, 4)), r"to_tensor: expected an image .* got shape \(3, 4\)"),
        (T.Normalize(), nd.ones((3, 4, 4), dtype="uint8"), "call ToTensor before"),
        (T.Normalize((1, 2)), nd.ones((3, 4, 4)), "mean must have 1 or 3 elements"),
        (T.Normalize(), nd.ones((3, 4)), "expected .channels, height, width"),
        (T.Resize(3), nd.ones(3), "expected an image"),
        (T.CenterCrop(3), nd.ones((4, 4)), "expected an image"),
        (T.RandomFlipLeftRight(), nd.ones((2, 5, 7, 3)), "expected an image .height, width, cha"),
        (T.RandomResizedCrop(3), nd.ones((2, 5, 7, 3)), "expected an image .height, width, cha"),
    ],
)  # fmt: skip
def test_wrong_images_are_refused_at_the_call(transform, x, words):
    with pytest.raises(MXNetError, match=words):
        transform(x)
    engine.waitall()


SMALL = np.arange(4 * 6 * 3, dtype="uint8").reshape(4, 6, 3)


def test_transforms_by_hand():
    x, tensor = picture(SMALL), nd.array(SMALL.transpose(2, 0, 1))
    mean, std = np.reshape((1.0, 2.0, 3.0), (3, 1, 1)), np.reshape((2.0, 4.0, 8.0), (3, 1, 1))
    tensor.attach_grad()
    with autograd.record():
        y = T.Normalize(mean.ravel(), std.ravel())(tensor)
    y.backward()
    assert np.allclose(y.asnumpy(), (tensor.asnumpy() - mean) / std)
    assert np.array_equal(tensor.grad.asnumpy(), np.ones((3, 4, 6)) / std)
    assert np.array_equal(T.CenterCrop((2, 4))(x).asnumpy(), SMALL[:, 2:4])
    assert np.array_equal(T.CenterCrop((4, 2))(x).asnumpy(), SMALL[1:3, 1:5])
    for shape, size, keep, expected in [
        ((4, 6, 3), 2, True, (2, 3, 3)), ((6, 4, 3), 2, True, (3, 2, 3)),
        ((4, 4, 3), 2, True, (2, 2, 3)), ((4, 6, 3), 2, False, (2, 2, 3)),
        ((4, 6, 3), (2, 5), True, (5, 2, 3)), ((3, 6, 4, 1), 2, True, (3, 3, 2, 1)),
    ]:  # fmt: skip
        assert T.Resize(size, keep)(nd.zeros(shape)).shape == expected


def test_transforms_that_draw():
    random.seed(3)
    x = picture(SMALL)
    for transform, other in (
        (T.RandomFlipLeftRight(), SMALL[:, ::-1]), (T.RandomFlipTopBottom(), SMALL[::-1]),
    ):  # fmt: skip
        seen = [transform(x).asnumpy().tolist() for _ in range(40)]
        assert 10 < seen.count(SMALL.tolist()) < 30
        assert seen.count(SMALL.tolist()) + seen.count(other.tolist()) == 40
    whole = T.RandomResizedCrop((6, 4), scale=1, ratio=(1.5, 1.5))
    assert np.array_equal(whole(x).asnumpy(), SMALL) and whole.scale == (1, 1.0)
    tall = T.RandomResizedCrop((2, 4), scale=(1, 1), ratio=(0.5, 0.5))  # never fits: the centre
    assert np.array_equal(tall(x).asnumpy(), SMALL[:, 2:4])
    ramp = nd.array(np.arange(40.0).reshape(1, 40, 1) + np.zeros((40, 1, 1)))
    small = T.RandomResizedCrop((10, 10), scale=(1 / 16, 1 / 16), ratio=(1, 1))
    starts = {float(small(ramp)[0, 0, 0].asscalar()) for _ in range(60)}
    assert starts <= set(range(31)) and min(starts) < 8 and max(starts) > 22

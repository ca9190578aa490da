"""Files that mean harm, one by one: what `tests/fuzz` found, and what was thought of.

Each was once another exception than MXNetError, an error without the file's name, memory without a
bound, a hang or a half-changed object; each is refused with words now.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
import tarfile
import tracemalloc
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

from d2lmini import MXNetError, cpu, gluon, nd, optimizer, sym
from d2lmini.gluon.data.vision import datasets
from d2lmini.ndarray import serialize
from d2lmini.optimizer import updater as updaters
from d2lmini.optimizer.lr_scheduler import FactorScheduler

ROOT = Path(__file__).parents[2]


# -- Symbols ---------------------------------------------------------------------------------------


def row(op="null", name="x", inputs=(), **more) -> dict:
    return {"op": op, "name": name, "inputs": [*inputs], **more}


X = row()
_SPLIT = {"indices": "()", "sections": "1000000000"}
_BAD_TABLES = {
    "an op of another kind": ([row(op=["null"])], [[0, 0]], "unhashable"),
    "no name": ([{"op": "null", "inputs": []}], [[0, 0]], "'name'"),
    "a row that is none": ([3], [[0, 0]], "node 3, number 0"),
    "a node from the end": ([X, X], [[-1, 0]], "is no [node, output]"),
    "a node of the future": ([row("relu", "y", [[0, 0]])], [[0, 0]], "of the 0 nodes before it"),
    "an output too many": ([X, row("relu", "y", [[0, 3]])], [[1, 0]], "[0, 3] is no [node"),
    "labels as pairs": ([row(attrs=[["a", 1]])], [[0, 0]], "node 'x', number 0"),
    "a number for a text": ([row(attrs={"a": 1})], [[0, 0]], "attributes are strings, got a=1"),
    "no heads": ([X], [], "has no outputs"),
    "no truth": (
        [X, row("Flatten", "y", [[0, 0]]), row("FullyConnected", "z", [[1, 0]],
         attrs={"num_hidden": "2", "no_bias": "maybe"})], [[2, 0]], "expected True or False"),
    "an op of ours alone": ([X, row("_scale_arrays", "y", [[0, 0]])], [[1, 0]], "is none that"),
    "nothing to join": ([row("Concat", "y")], [[0, 0]], "one or more inputs"),
    "a billion outputs": ([X, row("split_v2", "y", [[0, 0]], attrs=_SPLIT)], [[1, 0]], "00000000"),
    "a dtype as source": (
        [X, row("Cast", "y", [[0, 0]], attrs={"dtype": "(1,)f4"})], [[1, 0]], "dtype"),
    "a long name": ([row("nothing", "n" * 9999)], [[0, 0]], "nnn, number 0, is not"),
}  # fmt: skip


@pytest.mark.parametrize("case", _BAD_TABLES)
def test_tables_that_are_no_symbols(case: str, tmp_path):
    nodes, heads, words = _BAD_TABLES[case]
    text = json.dumps({"nodes": nodes, "heads": heads})
    with pytest.raises(MXNetError, match=f"^load_json: .*{re.escape(words)}") as error:
        sym.load_json(text)
    assert len(str(error.value)) < 1000
    path = tmp_path / "x-symbol.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(MXNetError, match=f"^load: .*x-symbol.json.*{re.escape(words)}"):
        sym.load(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe{}", "this is not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"nodes": ' + b"9" * 5000, "not JSON"),
        (b"[]", "not a Symbol"),
    ],
)
def test_files_that_are_no_json(content: bytes, words: str, tmp_path):
    path = tmp_path / "x-symbol.json"
    path.write_bytes(content)
    with pytest.raises(MXNetError, match=f"x-symbol.json.*{words}"):
        sym.load(path)


# -- states, structures, texts ---------------------------------------------------------------------


def states_of(meta, *arrays) -> bytes:
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    names = [updaters._META, *map(str, range(len(arrays)))]
    return serialize.dumps([(a, (1, 0)) for a in (text, *arrays)], names)


def described(name="SGD", schedule=None, **attributes) -> dict:
    said = {"class": name, "attributes": attributes}
    if schedule is not None:
        said["lr_scheduler"] = {"class": schedule.pop("class"), "attributes": schedule}
    return {"states": [], "optimizer": said}


_ONE = np.zeros(3, "float32")
_DEEP: list = []
for _ in range(60):
    _DEEP = [_DEEP]
_BAD_STATES = {
    "an array twice": (states_of({"states": [[0, 0], [1, 0]]}, _ONE), "no place yet"),
    "no such array": (states_of({"states": [[0, 7]]}, _ONE), "1 arrays"),
    "deep": (states_of({"states": [[0, _DEEP]]}), "expected the number"),
    "no JSON": (states_of(0)[:-100] + states_of(0)[-100:].replace(b"0", b"}"), "JSON|byte|states"),
    "a text for a rate": (states_of(described(lr="x")), "SGD.lr is x"),
    "counts below zero": (states_of(described(num_update=-1)), "number of updates"),
    "a table of texts": (
        states_of(described(lr_mult={"pairs": [["a", "b"]]})), "lr_mult holds values"),
    "an unknown class": (states_of(described("os.system")), "the Trainer has SGD"),
    "steps of nothing": (
        states_of(described(schedule={"class": "FactorScheduler", "step": 0})), "1 or more"),
    "a schedule that will be far behind": (
        states_of(described(begin_num_update=1 << 39, schedule={"class": "FactorScheduler"})),
        "too far behind"),
    "no rate": (states_of(described(lr=None)), "neither a learning rate nor a schedule"),
    "a pickle": (pickle.dumps(print), "pickle"),
}  # fmt: skip


@pytest.mark.parametrize("case", _BAD_STATES)
def test_states_that_are_refused_change_nothing(case: str):
    data, words = _BAD_STATES[case]
    schedule = FactorScheduler(2) if b"FactorScheduler" in data else None
    rate = None if schedule else 0.5
    updater = optimizer.get_updater(
        optimizer.SGD(learning_rate=rate, momentum=0.9, lr_scheduler=schedule)
    )
    updater(0, nd.ones(2), nd.ones(2))
    before, states = dict(vars(updater.optimizer)), updater.states
    pattern = words if "|" in words else re.escape(words)
    with pytest.raises(MXNetError, match=pattern):
        updater.set_states(data)
    assert vars(updater.optimizer) == before and updater.states is states


# -- archives and downloads ------------------------------------------------------------------------


def chunk(kind: bytes, body: bytes, length: int | None = None) -> bytes:
    """A part of a PNG file."""
    size = len(body) if length is None else length
    return struct.pack(">I", size) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def header(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + chunk(
        b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    )


_IMAGES = {
    "a picture of 300 megabytes": header(10_000, 10_000) + chunk(b"IDAT", zlib.compress(b"")),
    "a part of 4 gigabytes": header(7, 9) + chunk(b"IDAT", b"x" * 50, 0xFF0000D1),
    "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%true) (r) file\n",
    "nothing": b"",
    "cut short": header(7, 9)[:40],
}


@pytest.mark.parametrize("case", _IMAGES)
def test_images_that_are_refused(case: str, tmp_path):
    pytest.importorskip("PIL")
    path = tmp_path / "x.png"
    path.write_bytes(_IMAGES[case])
    read_image = datasets.read_image
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of large pictures
        tracemalloc.start()
        try:
            with pytest.raises(MXNetError, match=r"x\.png: the image cannot be read"):
                read_image(str(path))
            assert tracemalloc.get_traced_memory()[1] < 1 << 24
        finally:
            tracemalloc.stop()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0):
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.size = kind, link, size
    return found


def archive_of(path: Path, *members: tarfile.TarInfo) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return str(path)


@pytest.mark.parametrize("name", ["../x.bin", "/x.bin", "../../x.bin", "a/../../x.bin", "x.bin"])
def test_members_land_in_the_folder_wherever_they_say(name: str, tmp_path):
    folder = tmp_path / "in" / "it"
    folder.mkdir(parents=True)
    datasets.extract(archive_of(folder / "a.tgz", member(name, size=3)), str(folder), ["x.bin"])
    assert (folder / "x.bin").read_bytes() == b"xxx"
    everything = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*")}
    assert everything == {"in", "in/it", "in/it/a.tgz", "in/it/x.bin"}


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_no_files(kind: bytes, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    folder = tmp_path / "in"
    folder.mkdir()
    archive = archive_of(folder / "a.tgz", member("x.bin", kind, "../secret"))
    with pytest.raises(MXNetError, match=r"a\.tgz: there is no x\.bin"):
        datasets.extract(archive, str(folder), ["x.bin"])
    assert [p.name for p in folder.iterdir()] == ["a.tgz"]


def test_a_header_that_claims_gigabytes_takes_none(tmp_path):
    """tarfile reads such a header's text at once, and a file's `read` allocates what is asked."""
    head = member("x", tarfile.XHDTYPE, size=1 << 32).tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "a.tar").write_bytes(head + bytes(1024))
    tracemalloc.start()
    try:
        with pytest.raises(MXNetError, match=r"a\.tar"):
            datasets.extract(str(tmp_path / "a.tar"), str(tmp_path), ["x.bin"])
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()


# -- the chapters' server --------------------------------------------------------------------------


def test_the_server_of_the_chapters_keeps_its_safe_settings():
    """JupyterLab's own: this machine only, a token, the check against forged requests."""
    loose = re.compile(
        r"token\s*=\s*['\"]{2}|(Server|Notebook)App\.(token|password|ip|allow_origin\w*|disable_\w+)"
        r"|--ip\b|0\.0\.0\.0|--no-auth"
    )
    files = [ROOT / "Makefile", *ROOT.glob("d2lmini/**/*.py"), *ROOT.glob("chapters/*.*")]
    found = [p.name for p in files if loose.search(p.read_text(encoding="utf-8", errors="replace"))]
    assert found == []
    assert loose.search("jupyter lab --ip=*") and loose.search("--ServerApp.token=''")


# -- checkpoints -----------------------------------------------------------------------------------


def checkpoint_in(folder: Path) -> gluon.Checkpoint:
    net = gluon.nn.Dense(1, in_units=1)
    net.initialize()
    return gluon.Checkpoint(folder, net, gluon.Trainer(net.collect_params(), "sgd"))


@pytest.mark.parametrize(
    "whole",
    [
        {"ranks": 1, "files": {"/dev/zero": [1 << 40, 0]}},
        {"ranks": 1, "files": {"../../secret": [6, 0]}},
        {"ranks": "x", "files": {}},
        {"ranks": 1, "files": {"net.params": 3}},
        [],
    ],
)
def test_checkpoints_whose_list_is_refused(whole, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    checkpoint_in(tmp_path / "run").save(1)
    path = tmp_path / "run" / "step-00000001" / "whole.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(MXNetError, match=r"is damaged"):
        checkpoint_in(tmp_path / "run").restore()


# -- programs made of graphs -----------------------------------------------------------------------

_NAMES = [
    ("x\n1 / 0", "w", "y"), ("x'''", 'w"""', "y"), ("x\\", "w", "y\\"), ("x", "w", '"""\n1 / 0'),
    ("x", "w", "\r1 / 0"), ("x", "w", "\x0c1 / 0"), ("x", "w", "\u2028"), ("\ud800", "w", "y"),
    ("x", "w", "# y"), ("float", "range", "print"), ("xp", "arena", "keys"), ("None", "x", "if"),
    ("__debug__", "x", "y"), ("x", "w", "__debug__"), ("数据", "权重", "输出"), ("", "w", "y"),
    ("\ufb01", "fi", "y"), ("fi", "\ufb01", "y"), ("ª", "a", "y"), ("²", "x", "y"),
    ("x", "w", "²"), ("x", "w", "\u0661"), ("x", "w", "\ufb01"),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b", "c"), _NAMES)
def test_names_of_a_file_do_no_harm_in_the_program(a: str, b: str, c: str):
    """A graph becomes Python source, in which its nodes have their names. Names that Python takes
    for one once gave wrong numbers: it reads the ligature fi as two letters."""
    y = sym.broadcast_sub(sym.var(a) * 2, sym.exp(sym.var(b)), name=c)
    y = sym.load_json(y.tojson())
    arrays = {a: nd.array([1, 2]), b: nd.array([0, 1])}
    (got,) = y.bind(cpu(), arrays, grad_req="null").forward()
    np.testing.assert_allclose(got.asnumpy(), [2 - 1, 4 - np.e], rtol=1e-6)

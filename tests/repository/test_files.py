"""Every file of the library's is written whole or not at all.

A law over all writers: however little room the disk has, and wherever Ctrl-C comes, the old file is
intact or the new one is complete, and nothing else lies in the folder.
"""

from __future__ import annotations

import ast
import builtins
import errno
import gzip
import io
import os
import stat
import tarfile
from itertools import count
from pathlib import Path

import pytest
from interrupts import PACKAGE, interrupt_at

import d2lmini
from d2lmini import autograd, gluon, kvstore, nd, sym
from d2lmini.device import files
from d2lmini.gluon import nn


def _net(seed):
    d2lmini.random.seed(seed)
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(nn.Dense(3 + seed, in_units=2))
    net.initialize()
    net.hybridize()
    net(nd.ones((1, 2))).wait_to_read()
    return net


def _trainer(seed):
    net = _net(seed)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1 * seed})
    with autograd.record():
        net(nd.ones((1, 2))).backward()
    trainer.step(1)
    return trainer


def _kvstore(seed):
    kv = kvstore.create("local")
    kv.init("w", nd.zeros(3 * seed))
    kv.set_optimizer(d2lmini.optimizer.Adam(learning_rate=0.1 * seed))
    kv.push("w", nd.ones(3 * seed))
    return kv


def _trace(seed):
    with d2lmini.profile() as trace:
        nd.ones(seed).wait_to_read()
    return trace


def _archive(folder, seed):
    path = folder.parent / f"{seed}.tar.gz"
    with gzip.open(path, "wb") as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        member = tarfile.TarInfo("data.bin")
        member.size = 1000 * seed
        tar.addfile(member, io.BytesIO(bytes(1000 * seed)))
    return str(path)


def _unpack(folder, seed):
    from d2lmini.gluon.data.vision import datasets

    path = _archive(folder, seed)
    return lambda: datasets.extract(path, str(folder), ["data.bin"])


#: Name -> what takes a folder and a number and gives the call that writes its files there: other
#: ones for another number.
WRITERS = {
    "nd.save": lambda f, n: lambda: nd.save(str(f / "a.params"), [nd.ones(1000 * n)]),
    "save_parameters": lambda f, n: (net := _net(n)) and (
        lambda: net.save_parameters(str(f / "a.params"))
    ),
    "export": lambda f, n: (net := _net(n)) and (lambda: net.export(str(f / "a"))),
    "Symbol.save": lambda f, n: (s := [sym.var("x") + n]) and (
        lambda: s[0].save(str(f / "a.json"))
    ),
    "Trainer.save_states": lambda f, n: (t := _trainer(n)) and (
        lambda: t.save_states(f / "a.states")
    ),
    "KVStore.save_optimizer_states": lambda f, n: (kv := _kvstore(n)) and (
        lambda: kv.save_optimizer_states(f / "a.states")
    ),
    "trace.save": lambda f, n: (t := _trace(n)) and (lambda: t.save(f / "a.json")),
    "files.write": lambda f, n: lambda: files.write(f / "a.txt", "text" * n),
    "unpacked data": _unpack,
}  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    """Every file there is, hidden ones too."""
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Full:
    """A disk that takes `left` more writes: `open` gives files that fail at the next one, having
    written a part of it."""

    def __init__(self, left: int):
        self.left = left
        self.failed = False

    def open(self, path, mode="r", *args, **kwargs):
        file = _open(path, mode, *args, **kwargs)
        if "r" in mode or not isinstance(path, (str, os.PathLike)) or "dev" in str(path)[:5]:
            return file
        return _Filling(file, self)

    def take(self, file, data):
        self.left -= 1
        if self.left < 0:
            self.failed = True
            file.write(data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return file.write(data)


class _Filling:
    """A file on a `Full` disk."""

    def __init__(self, file, disk):
        self._file, self._disk = file, disk

    def write(self, data):
        return self._disk.take(self._file, data)

    def writelines(self, pieces):
        for piece in pieces:
            self.write(piece)

    def close(self):
        """Its last bytes come to the disk here, so that it fails here too."""
        if not self._file.closed:
            self._file.close()
            if self._disk.left == 0:
                self._disk.left, self._disk.failed = -1, True
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getattr__(self, name):
        return getattr(self._file, name)


_open = builtins.open


@pytest.fixture(params=WRITERS)
def written(request, tmp_path):
    """A folder with old files, the call that writes new ones over them, and those new ones."""
    folder = tmp_path / "files"
    folder.mkdir()
    write = WRITERS[request.param](folder, 2)
    write()
    new = contents(folder)
    WRITERS[request.param](folder, 1)()
    old = contents(folder)
    assert old and old.keys() == new.keys() and old != new
    return folder, write, old, new


def test_a_full_disk(written, monkeypatch):
    folder, write, old, new = written
    for left in count():
        disk = Full(left)
        with monkeypatch.context() as patched:
            patched.setattr(builtins, "open", disk.open)
            try:
                write()
            except OSError as problem:
                assert disk.failed and "No space left" in str(problem), problem
                assert str(folder) + "/." not in str(problem), "the temporary file's name"
        found = contents(folder)
        if not disk.failed:
            break
        assert found == old, f"write number {left}: {found.keys()}"
    assert left > 0, "nothing was written by `open`"
    assert found == new


STRUCK = tuple(
    str(PACKAGE / name)
    for name in (
        "device/files.py",
        "ndarray/serialize.py",
        "gluon/compiled.py",
        "engine/signals.py",
    )
)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:.*FileIO")  # before its `with`
def test_ctrl_c(written):
    """All of the files are old, or all are new: those of one call belong together."""
    folder, write, old, new = written
    for k in count():
        with interrupt_at(k, STRUCK) as strike:
            write()
        found = contents(folder)
        assert found.keys() == old.keys(), f"struck at {strike.where}"
        assert found in (old, new), f"struck at {strike.where}"
        if not strike.done:
            break
    assert k > 3


def test_permissions_links_and_what_is_no_plain_file(tmp_path):
    path, link = tmp_path / "a.txt", tmp_path / "link.txt"
    path.write_text("old")
    path.chmod(0o600)
    if os.name != "nt":
        link.symlink_to(path)
        files.write(link, "new")
        assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.read_text() == "new"
        files.write("/dev/null", "gone")
        assert not Path("/dev/null").is_file()
    with pytest.raises(OSError, match=r"nowhere"):
        files.write(tmp_path / "nowhere" / "a.txt", "")
    files.write(tmp_path / ("n" * 255), [b"a", b"b"])
    assert (tmp_path / ("n" * 255)).read_bytes() == b"ab"


#: Places that open a file to write by themselves, and why that is right.
BY_THEMSELVES = {
    "device/files.py": "the one that does it",
    "gluon/utils.py": "a download, beside",
    "gluon/checkpoint.py": "in a folder that takes its name when it is whole",
}


def test_nobody_else_opens_a_file_to_write():
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func).split(".")[-1]
            modes = [a.value for a in node.args[1:] if isinstance(a, ast.Constant)]
            modes += [getattr(k.value, "value", "") for k in node.keywords if k.arg == "mode"]
            opens = name == "open" and any(
                isinstance(m, str) and set(m) & set("wax") and len(m) < 4 for m in modes
            )
            if opens or name in ("write_text", "write_bytes", "tofile"):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == set(BY_THEMSELVES), found ^ set(BY_THEMSELVES)

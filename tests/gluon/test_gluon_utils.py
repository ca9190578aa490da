"""gluon.utils: copies to devices, gradients of limited length, downloads."""

import hashlib
import http.server
import threading

import numpy as np
import pytest
from listeners import Pushes

from d2lmini import engine, nd, virtual_gpus
from d2lmini.base import MXNetError, instrument
from d2lmini.gluon import utils

# ---- split_data, split_and_load


@pytest.mark.parametrize("axis", [0, 1])
def test_every_part_is_copied_once_and_straight_to_its_device(axis):
    x = np.arange(6e4, dtype="float32").reshape(200, 300)
    with virtual_gpus(2) as gpus:
        on_cpu, on_gpu = nd.array(x), nd.array(x, ctx=gpus[0])
        for data, others in ((x, 0), (on_cpu, 2 * axis), (on_gpu, 2 * axis)):
            nd.waitall()
            with instrument.listening(Pushes()) as log:
                parts = utils.split_and_load(data, gpus, batch_axis=axis)
            copies = [name for name in log.names if name.startswith("Copy")]
            assert len(copies) == (1 if data is on_gpu else 2), log.names
            assert len(log.names) == len(copies) + others, log.names
            assert [part.context for part in parts] == gpus
            assert (np.concatenate([part.asnumpy() for part in parts], axis) == x).all()


def test_one_context_gets_everything_as_it_is():
    x = nd.ones(3)
    (part,) = utils.split_and_load(x, [x.context], batch_axis=5)
    assert part is x
    assert utils.split_and_load([[1, 2]], [x.context])[0].asnumpy().tolist() == [[1, 2]]
    for num_slice, axis, error in ((0, 0, ValueError), (1, 1, IndexError), (1, -2, IndexError)):
        with pytest.raises(error, match="split_data"):
            utils.split_data(x, num_slice, axis)
    assert [len(y) for y in utils.split_data(x, 5, -1, False)] == [1, 1, 1, 0, 0]


# ---- clip_global_norm


def test_clip_without_a_check_does_not_wait():
    arrays = [nd.array([3.0]), nd.array([4.0])]
    gate, over = threading.Event(), threading.Event()

    def hold():
        gate.wait(30)
        over.set()

    engine.push(hold, writes=[arrays[0]])
    norm = utils.clip_global_norm(arrays, 1.0, check_isfinite=False)
    assert not over.is_set(), "it came back while what it needs is still pending"
    gate.set()
    assert isinstance(norm, nd.NDArray) and norm.asscalar() == 5
    np.testing.assert_allclose(arrays[1].asscalar(), 0.8, rtol=1e-6)


def test_clip_warns_of_what_is_not_finite():
    for bad in (np.nan, np.inf):
        with pytest.warns(UserWarning, match="nan or inf is detected. Clipping results will be"):
            utils.clip_global_norm([nd.array([1.0, bad])], 1)


def test_clip_to_several_norms_is_refused_before_anything_changes():
    arrays = [nd.ones(3), nd.ones((2, 3))]
    with pytest.raises(MXNetError, match=r"the factor is an array of size 1, got shape \(3,\)"):
        utils.clip_global_norm(arrays, nd.array([1, 2, 3]))
    assert all((x == 1).asnumpy().all() for x in arrays)


# ---- check_sha1, download


@pytest.fixture
def server(tmp_path):
    """A server of one file; `paths` tells what was asked for, `broken` cuts answers short."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "f.txt").write_bytes(b"hello" * 50_000)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(tmp_path / "served"))

        def log_message(self, *_):
            httpd.paths.append(self.path)

        def copyfile(self, source, target):
            data = source.read()
            target.write(data[:1000] if httpd.broken else data)
            httpd.broken = max(0, httpd.broken - 1)

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.paths, httpd.broken = [], 0
    httpd.url = f"http://127.0.0.1:{httpd.server_address[1]}"
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield httpd
    httpd.shutdown()
    thread.join()
    httpd.server_close()


HASH = hashlib.sha1(b"hello" * 50_000).hexdigest()


def test_download(server, tmp_path, monkeypatch, capfd):
    url = f"{server.url}/f.txt"
    target = tmp_path / "deep" / "f.txt"
    assert utils.download(url, str(target)) == str(target)
    assert utils.check_sha1(str(target), HASH)
    assert f"Downloading {target} from {url}..." in capfd.readouterr().out
    assert utils.download(url, str(target), sha1_hash=HASH) == str(target)
    assert utils.download(url, str(target.parent)) == str(target)
    assert len(server.paths) == 1, "it was there"
    utils.download(url, str(target), overwrite=True)
    target.write_text("something else")
    utils.download(url, str(target), sha1_hash=HASH)
    assert len(server.paths) == 3 and utils.check_sha1(str(target), HASH)
    monkeypatch.chdir(tmp_path)
    assert utils.download(url) == "f.txt"
    assert [p.name for p in target.parent.iterdir()] == ["f.txt"], "nothing else is left"
    with pytest.raises(ValueError, match="does not end in the name of a file; set path="):
        utils.download(f"{server.url}/")
    with pytest.raises(AssertionError, match="at least 0, currently it's -1"):
        utils.download(url, str(tmp_path / "other"), retries=-1)


def test_download_that_cannot_be(server, tmp_path):
    target = str(tmp_path / "there.txt")
    with pytest.raises(RuntimeError, match=r"Failed downloading url .*nope\.txt.*404"):
        utils.download(f"{server.url}/nope.txt", target)
    assert len(server.paths) == 2, "asked once (the server logs it twice): no use to ask again"
    with pytest.raises(ValueError, match="its SHA-1 is not aa"):
        utils.download(f"{server.url}/f.txt", target, sha1_hash="aa", retries=1)
    with pytest.raises(ConnectionError, match=r"cannot fetch .*put the file at .*there\.txt"):
        utils.download("http://127.0.0.1:9/x", target, retries=0)
    utils.download(f"{server.url}/f.txt", target)
    assert utils.check_sha1(target, HASH)

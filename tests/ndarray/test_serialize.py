"""`.params` files against those of the real MXNet, and against everything a damaged file can be.

The files in tests/data/params were written by MXNet 1.9.1 (tests/data/make_params.py says what is
in them). Where an interpreter with MXNet is at hand (`make test-mxnet`), both directions are also
tried with fresh files.
"""

import errno
import pathlib
import runpy
import struct
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from oracle import Oracle

from d2lmini.base import MXNetError
from d2lmini.ndarray import serialize

HERE = pathlib.Path(__file__).parents[1]
PARAMS = HERE / "data" / "params"
_made = runpy.run_path(str(HERE / "data" / "make_params.py"), run_name="make_params")
CASES, SPARSE, CPU = _made["CASES"], _made["SPARSE"], _made["CPU"]
# MXNet writes these in forms that we read only.
READ_ONLY = {"legacy_v0", "legacy_v1", "scalar_v2"}
WRITTEN = sorted(set(CASES) - READ_ONLY)

GOOD = (PARAMS / "names.params").read_bytes()


def same(got, want):
    """Equal to the bit: arrays (values, NaNs, shape, dtype), contexts and names."""
    (entries, names), (expected, expected_names) = got, want
    assert names == expected_names
    assert len(entries) == len(expected)
    for (a, ctx), (b, b_ctx) in zip(entries, expected):
        assert ctx == b_ctx
        assert a.dtype == b.dtype and a.dtype.isnative
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes()


# ---- files of the real MXNet


@pytest.mark.parametrize("case", sorted(CASES))
def test_reads_what_mxnet_wrote(case):
    path = PARAMS / f"{case}.params"
    same(serialize.load(path), CASES[case])
    same(serialize.load_frombuffer(path.read_bytes()), CASES[case])


@pytest.mark.parametrize("case", WRITTEN)
def test_writes_the_same_bytes_as_mxnet(case, tmp_path):
    want = (PARAMS / f"{case}.params").read_bytes()
    assert serialize.dumps(*CASES[case]) == want
    serialize.save(tmp_path / "x.params", *CASES[case])
    assert (tmp_path / "x.params").read_bytes() == want


# ---- round trips


dtypes = st.sampled_from(serialize.DTYPES)
arrays = dtypes.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
)
contexts = st.tuples(st.sampled_from([1, 2, 3, 5]), st.integers(0, 9))
entry_lists = st.lists(st.tuples(arrays, contexts), max_size=4)
names_like = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)


@given(entry_lists, st.data())
def test_round_trip(entries, data):
    n = len(entries)
    names = data.draw(st.one_of(st.just([]), st.lists(names_like, min_size=n, max_size=n)))
    same(serialize.load_frombuffer(serialize.dumps(entries, names)), (entries, names))


def test_big_arrays_are_not_held_twice(tmp_path):
    big = np.zeros((1 << 20, 2), "float32")  # 8 MB
    little = 1 << 20
    tracemalloc.start()
    try:
        serialize.save(tmp_path / "big", [(big, CPU), (big[1:], CPU)])
        assert tracemalloc.get_traced_memory()[1] < little
        entries, _ = serialize.load(tmp_path / "big")
        assert tracemalloc.get_traced_memory()[1] < 2 * big.nbytes + little
    finally:
        tracemalloc.stop()
    assert entries[1][0].shape == ((1 << 20) - 1, 2)


# ---- a save is whole or does nothing


@pytest.mark.parametrize(
    "accident, error",
    [
        (KeyboardInterrupt(), KeyboardInterrupt),
        (MemoryError(), MemoryError),
        (OSError(errno.ENOSPC, "No space left on device"), MXNetError),
    ],
)
def test_a_save_that_fails_midway_leaves_the_old_file_and_no_other(
    accident, error, tmp_path, monkeypatch
):
    path = tmp_path / "x.params"
    path.write_bytes(b"old")
    seen = []

    def fail_at_the_second(dtype):
        seen.extend(tmp_path.iterdir())
        if dtype == "int32":
            raise accident
        return 0

    monkeypatch.setattr(serialize, "flag_of", fail_at_the_second)
    with pytest.raises(error):
        serialize.save(path, [(np.ones(1 << 18), CPU), (np.ones(2, "int32"), CPU)])
    assert len(set(seen)) == 2  # a second file was there when it happened
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_refused_content_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "x.params"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="surrogates"):
        serialize.save(path, [(np.ones(2), CPU)], ["\ud800"])
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_a_refusal_of_the_system_is_an_mxnet_error(tmp_path):
    for path in (tmp_path / "no" / "x", tmp_path):
        with pytest.raises(MXNetError, match=r"save: cannot write") as error:
            serialize.save(path, *CASES["names"])
        assert isinstance(error.value.__cause__, OSError) and path.name in str(error.value)
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(MXNetError, match=r"load: cannot read") as error:
            serialize.load(path)
        assert isinstance(error.value.__cause__, OSError) and path.name in str(error.value)


# ---- damaged and foreign files


def u32(v):
    return struct.pack("<I", v)


def u64(v):
    return struct.pack("<Q", v)


def a_list(*records, count=None, tail=bytes(8)):
    n = len(records) if count is None else count
    return u64(0x112) + u64(0) + u64(n) + b"".join(records) + tail


def dense(shape=(2,), flag=0, storage=0, magic=0xF993FAC9, ndim=None, data=bytes(8)):
    n = len(shape) if ndim is None else ndim
    dims = b"".join(struct.pack("<q", d) for d in shape)
    return struct.pack("<IiI", magic, storage, n) + dims + struct.pack("<iii", 1, 0, flag) + data


@pytest.mark.parametrize(
    "blob, says",
    [
        (b"", r"byte 0 \(list header\): expected the list magic.*found nothing"),
        (b"abc", r"byte 0 .*found 61 62 63"),
        (b"PK\x03\x04" + bytes(90), "zip archive"),
        (b"\x93NUMPY" + bytes(90), "numpy.load"),
        (b'{"nodes": []}', "symbol.json"),
        (u64(0x113) + bytes(16), "found 13 01"),
        (a_list(count=1 << 40), r"byte 24 \(array 0\): expected at least one dimension"),
        (a_list(dense(flag=11)), r"byte 52 \(array 0\): .*type flag.*12; found 11"),
        (a_list(dense(flag=-1)), "type flag.*found -1"),
        (a_list(dense(storage=7)), r"\(array 0\): expected storage type 0, 1 or 2, found 7"),
        (a_list(dense(storage=-1)), "storage type.*found -1"),
        (a_list(dense((-2,))), r"expected a shape, found \(-2,\)"),
        (a_list(dense((1 << 40,))), r"1099511627776,\), only 16 are left; .*cut short"),
        (a_list(dense((1 << 62, 1 << 62))), "expected a shape"),
        (a_list(dense((0, 1 << 62), data=b"")), "expected a shape"),
        (a_list(dense(ndim=0xFFFFFFFF)), "ndim <= 64; found 0xffffffff"),
        (a_list(dense(magic=0x12345678)), "expected a magic.*found 0x12345678"),
        (a_list(dense(), dense(magic=77)), r"\(array 1\): expected a magic"),
        (a_list(u32(0) + bytes(20)), "never given a shape"),
        (a_list(u32(0xF993FAC8) + bytes(20)), "never given a shape"),
        (a_list(dense(), tail=u64(2)), r"\(names\): expected 1 names.* found 2"),
        (a_list(tail=u64(1)), "expected 0 names"),
        (a_list(dense(), tail=u64(1) + u64(1 << 60)), r"\(name 0\): expected 11529.* only 0 are"),
        (a_list(dense(), tail=u64(1) + u64(1) + b"\xff"), r"\(name 0\): expected UTF-8, found"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damage_is_named_with_file_place_and_expectation(blob, says, tmp_path):
    path = tmp_path / "mlp.params"
    path.write_bytes(blob)
    with pytest.raises(MXNetError, match=says) as error:
        serialize.load(path)
    assert str(error.value).startswith(f"load: {str(path)!r}, byte ")
    with pytest.raises(MXNetError, match=says):
        serialize.load_frombuffer(blob)


FILES = [p.read_bytes() for p in sorted(PARAMS.glob("*.params"))]
EDGES = [0, 1, 2, 3, 0x112, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
MAGICS = [0xF993FAC8, 0xF993FAC9, 0xF993FACA]


@st.composite
def mutated(draw):
    """A real file after some accidents: bytes and numbers changed, pieces cut or doubled."""
    blob = bytearray(draw(st.sampled_from(FILES)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(blob)))
        match draw(st.integers(0, 4)):
            case 0:
                blob[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                word = u32(draw(st.sampled_from([*EDGES, *MAGICS])) % 2**32)
                blob[at // 4 * 4 : at // 4 * 4 + 4] = word
            case 2:
                blob[at // 4 * 4 : at // 4 * 4 + 8] = u64(draw(st.sampled_from(EDGES)))
            case 3:
                del blob[at : at + draw(st.integers(1, 40))]
            case 4:
                start = draw(st.integers(0, len(blob)))
                blob[at:at] = blob[start : start + draw(st.integers(1, 60))]
    return bytes(blob)


@settings(max_examples=500, deadline=1000)
@given(st.one_of(mutated(), st.binary(max_size=60).map(lambda raw: GOOD[:24] + raw)))
def test_any_damaged_file_gives_arrays_or_mxnet_error(blob):
    try:
        entries, names = serialize.load_frombuffer(blob)
    except MXNetError:
        return
    assert len(names) in (0, len(entries))
    # What was read can be written and read again (contexts are not judged on reading).
    same(
        serialize.load_frombuffer(serialize.dumps([(a, CPU) for a, _ in entries])),
        ([(a, CPU) for a, _ in entries], []),
    )


# ---- with the real MXNet at hand


def load_and_save(mx, path, again):
    """What a file holds, (name, array) each, saved again by MXNet."""
    with mx.util.np_shape("np_shape" in path):
        got = mx.nd.load(path)
        mx.nd.save(again, got)
    pairs = got.items() if isinstance(got, dict) else [("", x) for x in got]
    return [(name, x.asnumpy()) for name, x in pairs]


def save_drawn(mx, path, seed, named):
    """Write drawn arrays; the arrays, by name."""
    rng = np.random.default_rng(seed)
    dtypes = "float32 float64 float16 uint8 int32 int8 int64 bool".split()
    arrays = {}
    for i in range(rng.integers(0, 6)):
        shape = tuple(rng.integers(1, 6, rng.integers(1, 5)))
        a = rng.integers(0, 100, shape).astype(dtypes[rng.integers(8)])
        arrays[f"{i}_w{rng.integers(1000)}"] = a
    drawn = {name: mx.nd.array(a, dtype=a.dtype) for name, a in arrays.items()}
    mx.nd.save(path, drawn if named else list(drawn.values()))
    return arrays


@pytest.mark.parametrize("case", WRITTEN)
def test_mxnet_reads_what_we_wrote(case: str, mxnet: Oracle, tmp_path):
    arrays, names = CASES[case]
    ours, again = tmp_path / f"{case}.params", tmp_path / "again"
    serialize.save(ours, arrays, names)
    seen = mxnet.ask(load_and_save, str(ours), str(again))
    assert [name for name, _ in seen] == (names or [""] * len(arrays))
    for (a, _), (_, b) in zip(arrays, seen):
        assert (a.shape, a.dtype) == (b.shape, b.dtype) and a.tobytes() == b.tobytes()
    if case != "contexts":  # MXNet loads everything onto cpu(0)
        assert ours.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("n", range(8))
def test_fresh_files_of_mxnet_load_here(n: int, mxnet: Oracle, tmp_path):
    path, seed = tmp_path / "theirs.params", int(np.random.default_rng().integers(1 << 30))
    sys.stdout.write(f"seed {seed}\n")
    kept = mxnet.ask(save_drawn, str(path), seed, n % 2 == 1)
    want = [(a, CPU) for a in kept.values()], list(kept) if n % 2 else []
    same(serialize.load(path), want)
    assert serialize.dumps(*want) == path.read_bytes()

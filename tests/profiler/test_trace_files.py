"""Files of traces: their sizes, what they cost in memory, and what is no such file. That a trace
read again gives the same answers is in test_profiler_chrome.py."""

from __future__ import annotations

import gzip
import json

import pytest

from d2lmini import MXNetError, engine, nd, profile
from d2lmini.profiler import load
from d2lmini.profiler.evidence import Span


def a_trace():
    with engine.stepped(times=20), profile() as trace:
        x = nd.ones((2, 2))
        (x + 1).asnumpy()
    return trace


def test_the_name_says_whether_a_file_is_compressed(tmp_path):
    trace = a_trace()
    trace.save(tmp_path / "t.json")
    trace.save(str(tmp_path / "t.json.gz"))
    assert (
        gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == (tmp_path / "t.json").read_bytes()
    )
    (tmp_path / "t.json.gz").rename(tmp_path / "t")  # what is in it decides how it is read
    assert load(tmp_path / "t").end_ns == trace.end_ns


def test_what_is_no_trace_is_refused(tmp_path):
    a_trace().save(tmp_path / "t.json.gz")
    whole = (tmp_path / "t.json.gz").read_bytes()
    text = gzip.decompress(whole)
    file = tmp_path / "other.json"

    def loaded(content: bytes) -> None:
        file.write_bytes(content)
        load(file)

    for content in (b"", b"no JSON", b"\x1f\x8bno gzip", whole[:-20], text[:-20], b"\xff\xfe{}"):
        with pytest.raises(MXNetError, match=r"other\.json is not a whole JSON file"):
            loaded(content)
    for change in (
        (b'"operation":[', b'"operation":[7,'),
        (b'["cpu(0)"', b'["tpu(0)"'),
        (b'"pushed_ns":', b'"pushed":'),
        (b'"begin_ns":', b'"begin":'),
        (b'"live":[', b'"live":["a",'),
    ):
        assert change[0] in text
        with pytest.raises(MXNetError):
            loaded(text.replace(*change))
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nowhere.json")


# -- damaged files ---------------------------------------------------------------------------------


def test_a_value_of_another_kind_is_refused_at_its_place(tmp_path):
    """Of every column of every table: read and accounted, or refused by file and place."""
    path = tmp_path / "t.json"
    with profile() as trace:
        (nd.ones((3,)) * 2).asnumpy()
    trace.cpu.spans.append(Span(trace.thread, trace.begin_ns, trace.end_ns, "blocked"))
    trace.save(path)
    text, refused = path.read_text(), 0
    for table, columns in json.loads(text)["records"].items():
        for column in columns:
            for value in ("x", None, [], float("inf"), -1, 10**30, True):
                tree = json.loads(text)
                if table == "sites":
                    tree["records"][table][0] = value
                elif tree["records"][table][column]:
                    tree["records"][table][column][0] = value
                path.write_text(json.dumps(tree))
                try:
                    str(load(path).account())
                except MXNetError as problem:
                    assert str(path) in str(problem)
                    refused += 1
    assert refused > 150


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"workers": {"cpu": 10**9}}, r"otherData: workers is {'cpu': 1000000000}"),
        ({"begin_ns": 10**30}, r"otherData: begin_ns is 1000"),
        ({"older": 7}, r"otherData: older is 7"),
        ({"roles": {"x": "weights"}}, r"invalid literal .*: the file is not as it was written"),
    ],
)
def test_facts_beyond_reason_are_refused(facts, words, tmp_path):
    path = tmp_path / "t.json"
    with profile() as trace:
        nd.ones((3,)).asnumpy()
    trace.save(path)
    tree = json.loads(path.read_text())
    tree["otherData"].update(facts)
    path.write_text(json.dumps(tree))
    with pytest.raises(MXNetError, match=words):
        load(path)

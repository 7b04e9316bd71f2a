import json
import os
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from alphaiou.data.formats import json_stream
from alphaiou.data.formats.json_stream import parse_run, stream_arrays
from alphaiou.data.problems import DataError

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars | st.sampled_from(['"', "\\", '\\"', "\\\\", "[", "}", '{"a":[']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from("abcd") | st.text(max_size=4), values, max_size=5)


def read(path, keys):
    found = {}
    for run in stream_arrays(path, keys):
        found.setdefault(run.key, []).extend(parse_run(path, run))
    return found


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("json") / "x.json"


@pytest.mark.slow
@given(
    documents,
    st.sampled_from([None, 0, 2]),
    st.booleans(),
    st.sampled_from([1, 2, 3, 5, 17, 4096]),
)
@example({"a": ['\\"', "\\", {"b": "]"}]}, None, False, 1)
def test_agrees_with_the_standard_parser(path, document, indent, ascii_only, block):
    path.write_text(json.dumps(document, indent=indent, ensure_ascii=ascii_only), "utf-8")
    keys = {key for key, value in document.items() if isinstance(value, list)} & {*"abcd"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "BLOCK_BYTES", block)
        found = read(path, keys)
    assert repr(found) == repr({key: document[key] for key in document if key in keys})


def test_runs_tell_where_they_are_in_the_file(path, monkeypatch):
    monkeypatch.setattr(json_stream, "BLOCK_BYTES", 16)
    text = b'{"z": {"a": [1]}, "a": [' + b", ".join([b'{"n": 1}'] * 9) + b"]}"
    path.write_bytes(text)
    runs = list(stream_arrays(path, {"a"}))
    assert len(runs) > 2
    for run in runs:
        inner = run.text[1:-1]
        assert text[run.offset + 1 : run.offset + 1 + len(inner)] == inner


BROKEN = {
    "empty": b"",
    "only space": b" \n ",
    "a list": b"[]",
    "a number": b"12",
    "a string": b'"a"',
    "nothing after the brace": b"{",
    "no key": b"{1: 2}",
    "no colon": b'{"a" []}',
    "no value": b'{"a":}',
    "cut in a key": b'{"a',
    "cut in an array": b'{"a": [{"b": 1}, ',
    "cut in an element": b'{"a": [{"b": ',
    "cut after an array": b'{"a": []',
    "cut in a skipped value": b'{"z": {"b": [1, 2}',
    "cut in a skipped number": b'{"z": 12',
    "comma at the end of an array": b'{"a": [{"b": 1},]}',
    "comma at the end": b'{"a": [],}',
    "no comma between elements": b'{"a": [{"b": 1} {"b": 2}]}',
    "no comma between keys": b'{"a": [] "b": []}',
    "comma at the start of an array": b'{"a": [,{"b": 1}]}',
    "many keys": b"{" + b", ".join(b'"k%d": []' % i for i in range(200)) + b', "a": []}',
    "two commas": b'{"a": [{"b": 1},, {"b": 2}]}',
    "wrong bracket": b'{"a": [{"b": 1}}}',
    "wrong bracket inside": b'{"a": [{"b": 1]]}',
    "more after the end": b'{"a": []} {}',
    "the key twice": b'{"a": [], "a": []}',
    "a string for the list": b'{"a": "text"}',
    "null for the list": b'{"a": null}',
    "an object for the list": b'{"a": {"b": 1}}',
    "not UTF-8": b'{"a": ["\xff"]}',
    "key not UTF-8": b'{"\xff": []}',
    "UTF-16": '{"a": []}'.encode("utf-16"),
    "zero bytes": b"\0" * 100,
    "single quotes": b"{'a': []}",
    "a comment": b'{"a": [] // list\n}',
    "python": b'{"a": [None, True]}',
    "nested deeply": b'{"a": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
    "opened 100,000 times": b'{"a": [' + b"[" * 100_000,
    "a number of 10,000 digits": b'{"a": [' + b"1" * 10_000 + b"]}",
    "a control character": b'{"a": ["\x01"]}',
    "an unknown escape": b'{"a": ["\\q"]}',
    "a gzip": b"\x1f\x8b\x08" + bytes(range(256)),
}  # fmt: skip


@pytest.mark.parametrize("block", [1, 1 << 20])
@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_one_error_with_the_file_and_the_place(path, case, block, monkeypatch):
    if len(BROKEN[case]) > 50_000 and block == 1:
        block = 999
    monkeypatch.setattr(json_stream, "BLOCK_BYTES", block)
    path.write_bytes(BROKEN[case])
    with pytest.raises(DataError) as error:
        read(path, {"a"})
    assert str(path) in str(error.value)
    assert "byte" in str(error.value)


@pytest.mark.slow
def test_what_is_not_json_to_the_standard_parser_is_not_json_here(path):
    """Over random damage: an error where json.loads has one, unless the damage was passed over."""
    rng = random.Random(0)
    text = json.dumps({"x": 1, "a": [{"b": [1.5, "c\\"], "d": None}] * 5, "e": "f"}).encode()
    errors = 0
    for _ in range(1500):
        damaged = bytearray(text)
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(damaged))
            damaged[place : place + rng.randint(0, 2)] = rng.choices(b'{}[]",:\\ 0e-n\xff', k=1)
        path.write_bytes(damaged)
        try:
            found = read(path, {"a"})
        except DataError:
            errors += 1
            continue
        try:
            document = json.loads(damaged)
        except ValueError:
            # Only what is passed over goes unchecked: it must lie outside the list.
            assert all(isinstance(one, list) for one in found.values())
        else:
            assert found.get("a") == document.get("a")
    assert errors > 500


def test_a_value_without_end_is_given_up(path, monkeypatch):
    monkeypatch.setattr(json_stream, "ELEMENT_LIMIT_BYTES", 10_000)
    monkeypatch.setattr(json_stream, "BLOCK_BYTES", 100)
    path.write_bytes(b'{"a": ["' + b"x" * 100_000 + b'"]}')
    with pytest.raises(DataError, match="larger than"):
        read(path, {"a"})


@pytest.mark.slow
def test_many_small_arrays_are_given_up_soon(path):
    path.write_bytes(b"{" + b", ".join(b'"k%d": []' % i for i in range(400_000)) + b"}")
    with pytest.raises(DataError, match="more than 100 keys"):
        read(path, {"a"})


def test_a_byte_order_mark_is_no_fault(path):
    path.write_bytes(b'\xef\xbb\xbf{"a": [1]}\n')
    assert read(path, {"a"}) == {"a": [1]}


def test_no_such_file(tmp_path):
    with pytest.raises(DataError, match=r"absent\.json"):
        read(tmp_path / "absent.json", {"a"})
    with pytest.raises(DataError, match="cannot be read"):
        read(tmp_path, {"a"})
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.json")
        with pytest.raises(DataError, match="cannot be read"):
            read(tmp_path / "pipe.json", {"a"})

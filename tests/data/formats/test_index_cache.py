import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alphaiou.data.formats import index_cache
from alphaiou.data.formats.files import FolderImages, TarImages
from alphaiou.data.formats.index_cache import (
    ARRAYS,
    Sources,
    cache_folder,
    cached_index,
    load_index,
    save_index,
)
from alphaiou.data.problems import Problem
from tests.data.made_index import random_index

PROBLEM = Problem("ä.json", "annotation id 3", "box-flat", "flat", "mend it", "box left out")


@pytest.fixture
def index(tmp_path):
    index = replace(random_index(20), images=FolderImages(tmp_path), problems=(PROBLEM,))
    for name in index.files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return index


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "annotations.json"
    path.write_text("first")
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Reader:
    """Reads an index, and counts how often."""

    def __init__(self, index, sources):
        self.index, self.sources, self.reads = index, sources, 0

    def read(self):
        self.reads += 1
        return self.index

    def open(self, key=("coco", "x", "train")):
        return cached_index(key, lambda: (self.sources, self.read))


def assert_same(one, other):
    for name in ARRAYS:
        first, second = getattr(one, name), getattr(other, name)
        assert first.dtype == second.dtype
        np.testing.assert_array_equal(first, second)
    assert list(one.files) == list(other.files)
    for name in ("layout", "root", "split", "classes", "images", "problems"):
        assert getattr(one, name) == getattr(other, name)


def test_the_second_time_nothing_is_read(index, source):
    reader = Reader(index, Sources((source,)))
    assert reader.open() is index
    assert_same(reader.open(), index)
    assert reader.reads == 1
    reader.open(("coco", "x", "val"))
    assert reader.reads == 2


def test_an_index_whose_images_are_not_where_it_says_is_not_used(index, source, tmp_path):
    reader = Reader(index, Sources((source,)))
    reader.open()
    (tmp_path / index.files[7]).unlink()
    reader.open()
    assert reader.reads == 2
    elsewhere = replace(index, images=FolderImages(tmp_path / "elsewhere"))
    reader = Reader(elsewhere, Sources((source,)))
    for _ in range(2):
        reader.open(("coco", "y", "train"))
    assert reader.reads == 2


@pytest.mark.parametrize(
    "images",
    [TarImages((Path("a-0.tar"), Path("ü/a-1.tar"))), FolderImages(Path("/ä"), anywhere=True)],
)
def test_image_files_come_back(index, source, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ü").mkdir()
    for name in ("a-0.tar", "ü/a-1.tar"):
        (tmp_path / name).touch()
    index = replace(index.take([]), images=images)
    reader = Reader(index, Sources((source,)))
    reader.open()
    assert reader.open().images == images
    assert reader.reads == 1


def test_images_of_another_kind_are_not_kept(source):
    reader = Reader(random_index(3), Sources((source,)))
    reader.open()
    reader.open()
    assert reader.reads == 2


def test_the_index_of_no_images_is_kept(index, source):
    reader = Reader(index.take([]), Sources((source,)))
    reader.open()
    assert_same(reader.open(), reader.index)
    assert reader.reads == 1


def change_content(folder):
    (folder / "annotations.json").write_text("other")


def change_time(folder):
    os.utime(folder / "annotations.json", ns=(5, 5))


def remove_it(folder):
    (folder / "annotations.json").unlink()


def change_a_label(folder):
    (folder / "labels/deep/b.txt").write_text("0 1 1 1 1")


def add_an_image(folder):
    (folder / "images/deep/new.jpg").touch()


def remove_an_image(folder):
    (folder / "images/deep/b.jpg").unlink()


def rename_an_image(folder):
    (folder / "images/deep/b.jpg").rename(folder / "images/b.jpg")


@pytest.fixture
def folder_sources(tmp_path, source):
    for name in ("labels/a.txt", "labels/deep/b.txt", "images/a.jpg", "images/deep/b.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return Sources((source, tmp_path / "labels"), (tmp_path / "images",))


@pytest.mark.parametrize(
    "change",
    [
        change_content,
        change_time,
        remove_it,
        change_a_label,
        add_an_image,
        remove_an_image,
        rename_an_image,
    ],
)
def test_a_change_of_the_files_is_noticed(index, folder_sources, tmp_path, change):
    reader = Reader(index, folder_sources)
    reader.open()
    reader.open()
    assert reader.reads == 1
    change(tmp_path)
    reader.open()
    assert reader.reads == 2
    reader.open()
    assert reader.reads == 2


def test_the_content_of_an_image_plays_no_role_where_names_are_enough(folder_sources, tmp_path):
    before = folder_sources.fingerprint()
    (tmp_path / "images/a.jpg").write_text("pixels")
    assert folder_sources.fingerprint() == before


def test_a_link_to_a_folder_above_has_an_end(tmp_path, folder_sources):
    (tmp_path / "images/deep/again").symlink_to(tmp_path / "images")
    (tmp_path / "labels/nowhere").symlink_to(tmp_path / "not there")
    assert folder_sources.fingerprint() == folder_sources.fingerprint()


def test_a_change_while_reading_is_noticed(index, source):
    class SlowReader(Reader):
        def read(self):
            if self.reads == 0:
                source.write_text("changed while it was read")
            return super().read()

    reader = SlowReader(index, Sources((source,)))
    reader.open()
    reader.open()
    assert reader.reads == 2


def kept_file(index, source, cache):
    Reader(index, Sources((source,))).open()
    (path,) = cache.iterdir()
    return path


def test_an_older_version_is_ignored_and_replaced(index, source, cache, monkeypatch):
    monkeypatch.setattr(index_cache, "CACHE_VERSION", 0)
    path = kept_file(index, source, cache)
    monkeypatch.undo()
    assert load_index(path) is None
    monkeypatch.setenv("ALPHAIOU_CACHE", str(cache))
    Reader(index, Sources((source,))).open()
    assert load_index(path) is not None


def test_damaged_files_are_ignored(index, source, cache):
    path = kept_file(index, source, cache)
    whole = path.read_bytes()
    rng = random.Random(0)
    ignored = 0
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged[: rng.choice([len(whole)] * 3 + [rng.randrange(len(whole))])])
        found = load_index(path)
        if found is None:
            ignored += 1
        else:  # the damage is in a time stamp of the archive, or the like
            assert_same(found, index)
    assert ignored > 200
    for junk in (b"", b"PK", b"\0" * 1000, b"\x93NUMPY", json.dumps({"a": 1}).encode()):
        path.write_bytes(junk)
        assert load_index(path) is None
    reader = Reader(index, Sources((source,)))
    reader.open()
    reader.open()
    assert reader.reads == 1


def test_nothing_is_unpickled(cache, tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    cache.mkdir()
    path = cache / "trap.npz"
    np.savez(path, facts=np.array([Trap()], dtype=object))
    assert load_index(path) is None
    assert not (tmp_path / "sprung").exists()


def test_a_cache_that_cannot_be_written_is_no_obstacle(index, source, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "file/below"))
    reader = Reader(index, Sources((source,)))
    reader.open()
    reader.open()
    assert reader.reads == 2


def test_an_interrupted_write_leaves_nothing(index, source, cache, monkeypatch):
    def interrupted(file, **arrays):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_index(index, cache / "x.npz", Sources((source,)), "")
    assert list(cache.iterdir()) == []


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", "/elsewhere")
    assert cache_folder() == Path("/elsewhere")
    monkeypatch.setenv("ALPHAIOU_CACHE", "")
    assert cache_folder() is None
    monkeypatch.delenv("ALPHAIOU_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/alphaiou")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/alphaiou")


def test_switched_off_it_keeps_nothing(index, source, cache, monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", "")
    reader = Reader(index, Sources((source,)))
    reader.open()
    reader.open()
    assert reader.reads == 2
    assert not cache.exists()


def test_opening_an_index_does_not_load_torch():
    modules = ", ".join(
        f"alphaiou.data.{name}" for name in ("formats.index_cache", "formats.coco", "dataset")
    )
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

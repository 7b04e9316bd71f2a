"""Atomic writes: complete, on the disk, or without effect."""

import errno
import os
import stat
import sys

import pytest

from alphaiou._files import PART, WriteError, remove_parts, replacing, write_file


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_text_and_bytes(tmp_path):
    write_file(tmp_path / "new/a.txt", "ä")
    write_file(tmp_path / "new/b.bin", b"\0\xff")
    assert (tmp_path / "new/a.txt").read_bytes() == "ä".encode()
    assert (tmp_path / "new/b.bin").read_bytes() == b"\0\xff"
    assert names(tmp_path / "new") == ["a.txt", "b.bin"]


def test_text_that_cannot_be_encoded_leaves_the_file(tmp_path):
    write_file(tmp_path / "a.txt", "before")
    with pytest.raises(UnicodeEncodeError):
        write_file(tmp_path / "a.txt", "\ud800")
    assert (tmp_path / "a.txt").read_text() == "before"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, MemoryError])
def test_an_interrupted_write_leaves_the_file(tmp_path, error):
    write_file(tmp_path / "a.txt", "before")

    def write():
        with replacing(tmp_path / "a.txt") as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        write()
    assert (tmp_path / "a.txt").read_text() == "before"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.skipif(sys.platform == "win32", reason="limits are POSIX's")
def test_a_full_disk_is_named_with_a_remedy(tmp_path):
    import resource

    write_file(tmp_path / "a.txt", "before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(WriteError) as caught:
            write_file(tmp_path / "a.txt", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'a.txt'} could not be written: ")
    assert os.strerror(errno.EFBIG) in message
    assert "the file is as it was. Free some space" in message
    assert (tmp_path / "a.txt").read_text() == "before"
    assert names(tmp_path) == ["a.txt"]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WriteError, match=r"file/a\.txt could not be written: .*Free some"):
        write_file(tmp_path / "file/a.txt", "")


def test_the_content_is_on_the_disk_before_the_name_and_then_the_name(tmp_path, monkeypatch):
    path, synced, fsync = tmp_path / "a.txt", [], os.fsync

    def recorded(handle):
        state = os.fstat(handle)
        synced.append((stat.S_ISDIR(state.st_mode), state.st_ino, state.st_size, path.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    write_file(path, "12345")
    assert synced[0] == (False, path.stat().st_ino, 5, False)
    assert synced[1][:2] == (True, tmp_path.stat().st_ino)
    assert synced[1][3]


def test_the_mode_follows_the_umask(tmp_path):
    (tmp_path / "plain").touch()
    write_file(tmp_path / "a.txt", "")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_the_file_before_is_kept_as_backup(tmp_path):
    path, backup = tmp_path / "last", tmp_path / "previous"
    for content in "123":
        write_file(path, content, backup=backup)
    assert (path.read_text(), backup.read_text()) == ("3", "2")
    with pytest.raises(UnicodeEncodeError):
        write_file(path, "\ud800", backup=backup)
    assert (path.read_text(), backup.read_text()) == ("3", "2")
    assert names(tmp_path) == ["last", "previous"]


def test_two_writers_of_one_file_do_not_mix(tmp_path):
    with replacing(tmp_path / "a") as slow:
        slow.write(b"slow")
        write_file(tmp_path / "a", "fast and longer")
        assert (tmp_path / "a").read_text() == "fast and longer"
    assert (tmp_path / "a").read_text() == "slow"


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / f".last.0123abcd{PART}").write_text("half")
    (tmp_path / "last").write_text("whole")
    remove_parts(tmp_path)
    assert names(tmp_path) == ["last"]

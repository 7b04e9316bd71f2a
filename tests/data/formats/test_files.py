import io
import os
import pickle
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from alphaiou.data.formats.files import FolderImages, TarImages, stays_inside
from alphaiou.data.problems import DataError


def write_tar(path, members, format=tarfile.PAX_FORMAT):  # noqa: A002
    with tarfile.open(path, "w", format=format) as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def shards(tmp_path):
    return (
        write_tar(tmp_path / "a-0.tar", [("train/1.jpg", b"one"), ("train/2.jpg", b"two" * 999)]),
        write_tar(tmp_path / "a-1.tar", [("train/3.jpg", b""), ("other/2.jpg", b"second two")]),
    )


class TestFolder:
    def test_reads(self, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "a/1.jpg").write_bytes(b"one")
        images = FolderImages(tmp_path)
        assert images.read("a/1.jpg") == b"one"
        assert images.where("a/1.jpg") == str(tmp_path / "a/1.jpg")
        assert pickle.loads(pickle.dumps(images)) == images

    def test_missing(self, tmp_path):
        (tmp_path / "a").mkdir()
        (tmp_path / "a/1.jpg").touch()
        (tmp_path / "2.jpg").touch()
        (tmp_path / "folder.jpg").mkdir()
        (tmp_path / "dangling.jpg").symlink_to(tmp_path / "nowhere")
        (tmp_path / "linked.jpg").symlink_to(tmp_path / "2.jpg")
        names = ["a/1.jpg", "a/2.jpg", "2.jpg", "b/1.jpg", "folder.jpg", "dangling.jpg"]
        assert FolderImages(tmp_path).missing([*names, "linked.jpg"]) == [1, 3, 4, 5]

    @pytest.mark.parametrize("name", ["../secret.jpg", "a/../../secret.jpg", "/etc/hostname", ".."])
    def test_never_leaves_its_folder(self, tmp_path, name):
        (tmp_path / "secret.jpg").write_bytes(b"secret")
        (tmp_path / "set/a").mkdir(parents=True)
        images = FolderImages(tmp_path / "set")
        assert images.missing([name]) == [0]
        with pytest.raises(DataError, match="leads out of the folder"):
            images.read(name)

    def test_a_trusted_list_may_name_any_path(self, tmp_path):
        (tmp_path / "1.jpg").write_bytes(b"one")
        (tmp_path / "set").mkdir()
        images = FolderImages(tmp_path / "set", anywhere=True)
        for name in (str(tmp_path / "1.jpg"), "../1.jpg"):
            assert images.missing([name]) == []
            assert images.read(name) == b"one"

    @pytest.mark.parametrize("name", ["none.jpg", "folder.jpg", "a\0b.jpg"])
    def test_what_cannot_be_read_names_the_file(self, tmp_path, name):
        (tmp_path / "folder.jpg").mkdir()
        with pytest.raises(DataError, match=r"none\.jpg|folder\.jpg|b\.jpg"):
            FolderImages(tmp_path).read(name)


class TestTar:
    def test_members_by_full_name_and_by_last_part(self, shards):
        images = TarImages(shards)
        assert images.read("train/1.jpg") == images.read("1.jpg") == b"one"
        assert images.read("train/2.jpg") == b"two" * 999
        assert images.read("other/2.jpg") == b"second two"
        assert images.read("3.jpg") == b""
        assert images.where("3.jpg") == f"{shards[1]}!3.jpg"

    def test_ambiguous_and_absent_names_are_missing(self, shards):
        images = TarImages(shards)
        assert images.missing(["1.jpg", "2.jpg", "train/2.jpg", "train/9.jpg"]) == [1, 3]
        with pytest.raises(DataError, match="more than one"):
            images.read("2.jpg")

    @pytest.mark.parametrize(
        "format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
    )
    def test_equals_tarfile_for_long_and_foreign_names(self, tmp_path, format):  # noqa: A002
        folder = "d" * 90 if format == tarfile.USTAR_FORMAT else "d" * 300
        contents = {f"{folder}/{i}-ä.jpg": bytes([i]) * (i * 700) for i in range(9)}
        path = write_tar(tmp_path / "long.tar", contents.items(), format)
        images = TarImages((path,))
        assert {name: images.read(name) for name in contents} == contents

    def test_links_and_folders_are_no_images(self, tmp_path):
        path = tmp_path / "links.tar"
        with tarfile.open(path, "w") as tar:
            for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE):
                member = tarfile.TarInfo(f"{kind.decode()}.jpg")
                member.type, member.linkname = kind, "/etc/passwd"
                tar.addfile(member)
        images = TarImages((path,))
        assert images.missing(["2.jpg", "1.jpg", "5.jpg", "6.jpg"]) == [0, 1, 2, 3]

    def test_names_that_lead_out_are_only_names(self, tmp_path):
        path = write_tar(tmp_path / "a.tar", [("../../x.jpg", b"x"), ("/abs/y.jpg", b"y")])
        images = TarImages((path,))
        assert (images.read("../../x.jpg"), images.read("y.jpg")) == (b"x", b"y")
        assert [p.name for p in tmp_path.iterdir()] == ["a.tar"]

    def test_pickles_small_and_reads_in_threads(self, shards):
        images = TarImages(shards)
        images.read("1.jpg")
        assert len(pickle.dumps(images)) < 1000
        copy = pickle.loads(pickle.dumps(images))
        with ThreadPoolExecutor(8) as pool:
            read = list(pool.map(copy.read, ["train/1.jpg", "train/2.jpg"] * 200))
        assert read == [b"one", b"two" * 999] * 200

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_a_forked_process_reads_through_the_same_files(self, shards):
        images = TarImages(shards)
        images.read("1.jpg")
        child = os.fork()
        if child == 0:
            os._exit(0 if images.read("train/2.jpg") == b"two" * 999 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    @pytest.mark.parametrize("size", [0, 100, 600, 1024, 1600, 3000])
    def test_cut_off(self, tmp_path, size):
        whole = write_tar(tmp_path / "whole.tar", [("1.jpg", b"1" * 700), ("2.jpg", b"2" * 700)])
        path = tmp_path / "cut.tar"
        path.write_bytes(whole.read_bytes()[:size])
        with pytest.raises(DataError, match=r"cut\.tar"):
            TarImages((path,)).read("2.jpg")

    @pytest.mark.parametrize("content", [b"\x1f\x8b\x08" + b"x" * 600, b"PK\x03\x04" + b"y" * 9999])
    def test_not_a_tar(self, tmp_path, content):
        (tmp_path / "a.tar").write_bytes(content)
        with pytest.raises(DataError, match=r"a\.tar.*uncompress"):
            TarImages((tmp_path / "a.tar",)).missing(["1.jpg"])

    def test_no_such_shard(self, tmp_path):
        with pytest.raises(DataError, match=r"none\.tar"):
            TarImages((tmp_path / "none.tar",)).read("1.jpg")


@pytest.mark.parametrize("name", ["", ".", "C:/x", "..\\x", "a\\..\\..\\x", "\\x"])
def test_windows_spellings_do_not_lead_out_either(name):
    assert not stays_inside(name)


def test_real_shards():
    folder = Path(__file__).parents[4] / "shared/data/voc320"
    if not folder.is_dir():
        pytest.skip("shared/data/voc320 is not beside this checkout")
    images = TarImages(tuple(sorted(folder.glob("test-*.tar"))))
    assert images.read("008847.webp")[:4] == images.read("test/008847.webp")[:4] == b"RIFF"

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alphaiou.data.formats.files import FolderImages, TarImages
from alphaiou.data.formats.writing import flat_names, place_images, writing_folder
from alphaiou.data.problems import DataError
from tests.data.formats.test_files import write_tar


def tree(folder):
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*.*")}


def test_a_new_folder(tmp_path):
    with writing_folder(tmp_path / "deep/set") as folder:
        (folder / "a.txt").write_text("a")
        assert not (tmp_path / "deep/set").exists()
    assert tree(tmp_path) == {"deep/set/a.txt": "a"}


def test_an_error_leaves_nothing(tmp_path):
    def write():
        with writing_folder(tmp_path / "set") as folder:
            (folder / "a.txt").write_text("a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_files_are_added_and_the_same_ones_may_be_there(tmp_path):
    for name in ("a", "b"):
        with writing_folder(tmp_path / "set", may_change={"list.txt"}) as folder:
            (folder / f"{name}.txt").write_text(name)
            (folder / "same.txt").write_text("same")
            (folder / "list.txt").write_text(name)
    expected = {"a.txt": "a", "b.txt": "b", "same.txt": "same", "list.txt": "b"}
    assert tree(tmp_path) == {f"set/{name}": text for name, text in expected.items()}


def test_other_content_is_never_replaced(tmp_path):
    def write():
        with writing_folder(tmp_path) as folder:
            (folder / "a.txt").write_text("a")
            (folder / "b.txt").write_text("b")

    (tmp_path / "b.txt").write_text("mine")
    with pytest.raises(DataError, match=r"b\.txt: is there already"):
        write()
    assert tree(tmp_path) == {"b.txt": "mine"}


@pytest.fixture
def source(tmp_path):
    (tmp_path / "from").mkdir()
    (tmp_path / "from/1.jpg").write_text("one")
    return FolderImages(tmp_path / "from")


def test_links_share_the_file_and_copies_do_not(tmp_path, source):
    place_images(source, ["1.jpg"] * 2, tmp_path, ["to/l.jpg", "to/m.jpg"], "link")
    place_images(source, ["1.jpg"], tmp_path, ["to/c.jpg"], "copy")
    place_images(source, ["1.jpg"], tmp_path, ["to/n.jpg"], "none")
    assert tree(tmp_path / "to") == {"l.jpg": "one", "m.jpg": "one", "c.jpg": "one"}
    assert (tmp_path / "to/l.jpg").samefile(tmp_path / "from/1.jpg")
    assert not (tmp_path / "to/c.jpg").samefile(tmp_path / "from/1.jpg")


def test_members_of_a_tar_are_written(tmp_path):
    shard = write_tar(tmp_path / "a.tar", [("train/1.jpg", b"one")])
    place_images(TarImages((shard,)), ["1.jpg"], tmp_path / "to", ["x/1.jpg"], "link")
    assert tree(tmp_path / "to") == {"x/1.jpg": "one"}


def test_images_stay_inside_the_folder(tmp_path, source):
    with pytest.raises(DataError, match="leads out"):
        place_images(source, ["1.jpg"], tmp_path / "to", ["../1.jpg"], "copy")
    with pytest.raises(DataError, match=r"2\.jpg"):
        place_images(source, ["2.jpg"], tmp_path / "to", ["2.jpg"], "copy")


part = st.sampled_from(["a", "b", "_a", "a_b", ".."])


@given(st.lists(st.tuples(part, part, st.sampled_from([".jpg", ".png"])), unique=True))
def test_flat_names_are_flat_and_their_stems_differ(parts):
    names = flat_names(f"{folder}/{stem}{suffix}" for folder, stem, suffix in parts)
    stems = [name.rpartition(".")[0] for name in names]
    assert len(set(stems)) == len(names) == len(parts)
    assert not any("/" in name for name in names)

"""Files that mean harm, or are only damaged: never a traceback, always a file and a reason."""

import contextlib
import gzip
import io
import os
import struct
import tarfile
import tempfile
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from alphaiou.data.check import check_dataset
from alphaiou.data.images import ImageError, decode_image, image_size
from alphaiou.data.problems import DataError
from benchmarks.damage import (
    DEEP,
    IMAGES,
    JSON,
    KINDS,
    SOUND,
    Damage,
    attempt,
    check_by_command,
    damaged_set,
    damages,
    png,
)

SECRET = "the-content-of-another-file"

pytestmark = pytest.mark.filterwarnings(
    "ignore:The image decoding and encoding capabilities:DeprecationWarning"
)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", "")


VALID = {kind: KINDS[kind][2] for kind in ("xml", "list", "yaml", "label", "json")}


def make(root, kind, content=None):
    """A sound data set of the layout that a kind of file belongs to, but for that file."""
    layout, file, sound = KINDS[kind]
    content = sound if content is None else content
    damaged_set(root, Damage(layout, file, "", lambda path: path.write_bytes(content)))


def outcome(function, *arguments, **options):
    """What a function gives, or the error that it may raise; any other is a failure."""
    try:
        return function(*arguments, **options)
    except DataError as error:
        return error


def check(root):
    """What a check says: findings that name file, reason and remedy, or one error that does."""
    report = outcome(check_dataset, root, workers=1)
    if isinstance(report, DataError):
        assert str(root) in str(report)
        return [str(report)]
    for problem in report.problems:
        assert problem.file
        assert problem.kind
        assert problem.detail.strip()
        assert problem.remedy.strip()
    return [str(problem) for problem in report.problems]


#: Other than additions to folders: what can be read all the same, or cannot be known to be damage.
UNNOTICED = {
    *("byte order mark", "utf-16 with its mark", "of windows", "tabs", "blank lines"),
    *("two names", "two boxes", "no boxes", "empty", "nothing", "first 60 %", "first 90 %"),
    *("area of nan", "crowd of seven", "path to nowhere", "path to an image"),
    *("png with another name", "bytes changed", "another size"),
    "moved",  # images and annotations are looked for in other folders too
}


@pytest.mark.parametrize(
    "damage", list(damages()), ids=lambda damage: f"{damage.layout}: {damage.file}: {damage.name}"
)
def test_damage_is_said(tmp_path, monkeypatch, damage):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))
    root = tmp_path / "set"
    damaged_set(root, damage)
    for folder in (tmp_path, (root / damage.file).parent):
        (folder / "secret.dat").write_text(SECRET)
    row = attempt(root)
    assert row["outcome"] in ("read", "refused"), row["message"]
    noticed = row["findings"] or row["outcome"] == "refused"
    assert noticed or damage.name in UNNOTICED or damage.name.startswith("with ")
    said = [row["message"], *check(root)]
    assert SECRET not in "".join(said)
    assert max(map(len, said)) < 5000
    assert not list(tmp_path.rglob("hacked"))


@contextlib.contextmanager
def without_privileges():
    """Root may read everything, so that the tests of what is closed need another user."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("kind", KINDS)
def test_files_and_folders_that_may_not_be_read(kind):
    _, file, content = KINDS[kind]
    for closed in (file, file.rpartition("/")[0]):
        with tempfile.TemporaryDirectory() as folder:  # the folders above tmp_path may be closed
            root = Path(folder)
            make(root, kind, content)
            root.chmod(0o755)
            assert attempt(root)["outcome"] == "read"  # and everything is imported
            (root / closed).chmod(0)
            with without_privileges():
                row = attempt(root)
            (root / closed).chmod(0o755)
        assert row["outcome"] in ("read", "refused"), row["message"]
        assert row["findings"] or row["outcome"] == "refused"


def mutated(data, seed):
    """Some bytes changed, dropped, repeated or put in."""
    rng = np.random.default_rng(seed)
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        at = int(rng.integers(len(out)))
        span = int(rng.integers(1, 9))
        match int(rng.integers(4)):
            case 0:
                out[at] = int(rng.integers(256))
            case 1:
                del out[at : at + span]
            case 2:
                out[at:at] = out[at : at + span]
            case _:
                out[at:at] = rng.bytes(span)
        if not out:
            break
    return bytes(out)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("kind", VALID)
def test_mutated_annotations(tmp_path, kind, seed):
    make(tmp_path, kind, mutated(VALID[kind], [seed, len(kind)]))
    check(tmp_path)


@pytest.mark.parametrize("part", range(1, 10))
@pytest.mark.parametrize("kind", VALID)
def test_truncated_annotations(tmp_path, kind, part):
    make(tmp_path, kind, VALID[kind][: len(VALID[kind]) * part // 10])
    check(tmp_path)


def decodes_or_says(data):
    for read in (decode_image, image_size):
        result = outcome(read, data, "some.jpg")
        if isinstance(result, DataError):
            assert isinstance(result, ImageError)
            assert str(result).startswith("some.jpg: ")
            assert result.why
            assert result.kind in ("image-truncated", "image-unreadable")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("fmt", IMAGES)
def test_mutated_images(fmt, seed):
    data = IMAGES[fmt]
    decodes_or_says(mutated(data, [seed, 1]))
    decodes_or_says(mutated(data[:80], [seed, 2]) + data[80:])  # the header, where sizes are


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("fmt", IMAGES)
def test_truncated_images(fmt):
    for length in [*range(0, 64, 3), *range(64, len(IMAGES[fmt]), 97)]:
        decodes_or_says(IMAGES[fmt][:length])


BMP_HEADER = struct.pack("<IIIIiiHHIIiiII", 54, 0, 54, 40, 65535, 65535, 1, 24, *[0] * 6)
BOMBS = {
    "png of 2.5 gigapixels": png(50_000, 50_000, zlib.compress(b"\0")),
    "png with few pixels": png(9_000, 9_000, zlib.compress(b"\0" * 9)),
    "png of no size": png(0, 0, zlib.compress(b"")),
    "png with a long text": png(1, 1, b"a\0\0" + zlib.compress(b"\0" * 100_000_000), b"zTXt"),
    "bmp of 4 gigapixels": b"BM" + BMP_HEADER,
    "ppm of 10 gigapixels": b"P6 100000 100000 255 ",
    "gif of 4 gigapixels": b"GIF89a\xff\xff\xff\xff\0\0\0," + bytes(9),
    "jpeg of 4 gigapixels": IMAGES["JPEG"].replace(b"\0\x18\0\x20\x03", b"\xff\xff\xff\xff\x03"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_image_bombs(name):
    with pytest.raises(ImageError, match=r"bomb\.png"):
        decode_image(BOMBS[name], "bomb.png")


def tar_of(*members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, kind, content in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.linkname = kind, len(content), "/etc/passwd"
            tar.addfile(member, io.BytesIO(content))
    return file.getvalue()


GOOD_TAR = tar_of(("train/a.jpg", tarfile.REGTYPE, IMAGES["JPEG"]))
BAD_TARS = {
    "empty": b"",
    "zero bytes": bytes(10_240),
    "binary": bytes(range(256)) * 40,
    "compressed": gzip.compress(GOOD_TAR),
    "cut off": GOOD_TAR[:1000],
    "cut in the header": GOOD_TAR[:300],
    "link": tar_of(("train/a.jpg", tarfile.SYMTYPE, b"")),
    "hard link": tar_of(("train/a.jpg", tarfile.LNKTYPE, b"")),
    "device": tar_of(("train/a.jpg", tarfile.CHRTYPE, b"")),
    "leads out": tar_of(("../../a.png", tarfile.REGTYPE, IMAGES["PNG"])),
    "huge member": GOOD_TAR[:124] + b"77777777777\0" + GOOD_TAR[136:],
    "broken sum": GOOD_TAR[:148] + b"0000000\0" + GOOD_TAR[156:],
    "no image": tar_of(("train/a.jpg", tarfile.REGTYPE, b"no image")),
    "twice": tar_of(*[(f"{d}/a.jpg", tarfile.REGTYPE, IMAGES["JPEG"]) for d in "xy"]),
}


@pytest.mark.parametrize("name", BAD_TARS)
def test_hostile_shards(tmp_path, name):
    root = tmp_path / "set"
    make(root, "json")
    (root / "images/train/a.jpg").unlink()
    (root / "images/train").rmdir()
    (root / "images").rmdir()
    (root / "train-0.tar").write_bytes(BAD_TARS[name])
    before = sorted(tmp_path.rglob("*"))
    assert check(root)
    assert isinstance(check_by_command(root), dict)
    assert sorted(tmp_path.rglob("*")) == before  # nothing was extracted


def test_what_is_passed_over_may_be_deep(tmp_path):
    deep = b'{"info": ' + b"[" * DEEP + b"]" * DEEP + b"," + JSON[1:]
    make(tmp_path, "json", deep)
    assert check(tmp_path) == []


def test_the_sound_sets_that_the_cases_start_from_are_sound(tmp_path):
    for kind in VALID:
        make(tmp_path / kind, kind)
        assert check(tmp_path / kind) == []


def test_there_are_many_cases():
    counts = Counter(damage.layout for damage in damages())
    assert min(counts[layout] for layout in SOUND) >= 40

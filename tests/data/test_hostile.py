"""Files that mean harm, or are only damaged: never a traceback, always a file and a reason."""

import gzip
import io
import json
import os
import struct
import tarfile
import zlib

import numpy as np
import pytest
from PIL import Image

from alphaiou.cli import main
from alphaiou.data.check import check_dataset
from alphaiou.data.images import ImageError, decode_image, image_size
from alphaiou.data.problems import DataError

SECRET = "the-content-of-another-file"
DEEP = 100_000

pytestmark = pytest.mark.filterwarnings(
    "ignore:The image decoding and encoding capabilities:DeprecationWarning"
)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", "")


def encoded(fmt):
    pixels = np.random.default_rng(3).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert("P") if fmt == "GIF" else image).save(file, fmt)
    return file.getvalue()


IMAGES = {fmt: encoded(fmt) for fmt in ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")}

XML = b"""<annotation><size><width>32</width><height>24</height><depth>3</depth></size>
<object><name>cat</name><difficult>0</difficult>
<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax><ymax>20</ymax></bndbox></object></annotation>"""
YAML = b"path: .\ntrain: images/train\nnames:\n  0: cat\n  1: dog\n"
LABEL = b"0 0.5 0.5 0.25 0.5\n1 0.25 0.25 0.125 0.25\n"
COCO = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 32, "height": 24}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5], "area": 25}],
    "categories": [{"id": 1, "name": "cat"}],
}
JSON = json.dumps(COCO).encode()

#: The file of each layout that a case replaces.
TARGETS = {
    "xml": "VOC2007/Annotations/a.xml",
    "list": "VOC2007/ImageSets/Main/train.txt",
    "classes": "classes.txt",
    "yaml": "data.yaml",
    "label": "labels/train/a.txt",
    "json": "annotations/train.json",
}
VALID = {"xml": XML, "list": b"a\nb\n", "yaml": YAML, "label": LABEL, "json": JSON}


def make(root, kind):
    """A sound data set of the layout that a kind of file belongs to."""
    if kind in ("xml", "list", "classes"):
        files = {
            "VOC2007/Annotations/a.xml": XML,
            "VOC2007/Annotations/b.xml": XML,
            "VOC2007/ImageSets/Main/train.txt": b"a\nb\n",
            "VOC2007/JPEGImages/a.jpg": IMAGES["JPEG"],
            "VOC2007/JPEGImages/b.jpg": IMAGES["JPEG"],
        }
    elif kind in ("yaml", "label"):
        files = {
            "data.yaml": YAML,
            "images/train/a.jpg": IMAGES["JPEG"],
            "images/train/b.jpg": IMAGES["JPEG"],
            "labels/train/a.txt": LABEL,
            "labels/train/b.txt": LABEL,
        }
    else:
        files = {"annotations/train.json": JSON, "images/train/a.jpg": IMAGES["JPEG"]}
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root / TARGETS[kind]


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


def check_by_command(root, capsys):
    """The same on the command line: an exit code, and JSON or one line of error."""
    code = main(["data", "check", str(root), "--json", "--workers", "1"])
    out, err = capsys.readouterr()
    assert code in (0, 1)
    assert "Traceback" not in err
    if out:
        assert json.loads(out)["ok"] is (code == 0)
    else:
        assert err.startswith("alphaiou: ")
        assert code == 1


def with_doctype(declarations, use):
    return b"<!DOCTYPE annotation [%s]>%s" % (declarations, XML.replace(b"cat", use))


LAUGHS = b"".join(
    b'<!ENTITY l%d "%s">' % (i, b"lol" if i == 0 else b"&l%d;" % (i - 1) * 10) for i in range(10)
)


def corners(value):
    return XML.replace(b"<xmin>1<", b"<xmin>" + value + b"<")


BAD_XML = {
    "empty": b"",
    "spaces": b"   \n",
    "zero bytes": b"\0" * 100,
    "binary": bytes(range(256)) * 4,
    "unclosed": XML[:-20],
    "text after the end": XML + b"x",
    "two roots": XML + XML,
    "other root": b"<html><body/></html>",
    "html": b"<!DOCTYPE html><html><br></html>",
    "invalid utf-8": XML.replace(b"cat", b"\xff\xfe\xfa"),
    "unknown encoding": b'<?xml version="1.0" encoding="klingon"?>' + XML,
    "encoding of many bytes": b'<?xml version="1.0" encoding="utf-7"?>' + XML,
    "wrong encoding": b'<?xml version="1.0" encoding="utf-16"?>' + XML,
    "billion laughs": with_doctype(LAUGHS, b"&l9;"),
    "billion laughs in utf-16": with_doctype(LAUGHS, b"&l9;").decode().encode("utf-16"),
    "quadratic": with_doctype(b'<!ENTITY a "%s">' % (b"x" * 50_000), b"&a;" * 500),
    "external entity": with_doctype(b'<!ENTITY x SYSTEM "secret.dat">', b"&x;"),
    "external by url": with_doctype(b'<!ENTITY x SYSTEM "http://127.0.0.1:9/">', b"&x;"),
    "external dtd": b'<!DOCTYPE annotation SYSTEM "secret.dat">' + XML,
    "parameter entity": with_doctype(b'<!ENTITY % p SYSTEM "secret.dat"> %p;', b"cat"),
    "undefined entity": XML.replace(b"cat", b"&nope;"),
    "deep": b"<annotation>" + b"<a>" * DEEP + b"</a>" * DEEP + b"</annotation>",
    "deep and unclosed": b"<annotation>" + b"<object>" * DEEP,
    "no objects' names": XML.replace(b"name", b"nom"),
    "empty name": XML.replace(b"cat", b""),
    "no box": XML.replace(b"bndbox", b"box"),
    "one corner": XML.replace(b"<xmin>1</xmin>", b""),
    "nan": corners(b"nan"),
    "inf": corners(b"-inf"),
    "1e400": corners(b"1e400"),
    "1e308": corners(b"-1e308"),
    "million digits": corners(b"9" * 1_000_000),
    "words": corners(b"one"),
    "nothing": corners(b""),
    "hexadecimal": corners(b"0x10"),
    "nested number": corners(b"<b>1</b>"),
    "beyond the image": corners(b"29").replace(b">30<", b">3000<").replace(b">29<", b">2999<"),
    "flat": corners(b"99"),
    "size of nothing": XML.replace(b">32<", b">0<"),
    "negative size": XML.replace(b">32<", b">-32<"),
    "endless size": XML.replace(b">32<", b">1e999<"),
    "huge size": XML.replace(b">32<", b">99999999999999999999<"),
    "other size": XML.replace(b">32<", b">33<"),
}

BAD_LISTS = {
    "empty": b"",
    "leads out": b"a\n../../../secret\n",
    "absolute": b"a\n/etc/passwd\n",
    "windows": b"a\nC:\\secret\n..\\..\\secret\n",
    "zero bytes": b"a\0b\n" * 3,
    "invalid utf-8": b"\xff\xfe\xfd\n",
    "binary": bytes(range(256)) * 3,
    "long line": b"a" * 1_000_000,
    "not there": b"a\nnone\n",
    "repeated": b"a\na\n",
    "dots": b"a\n..\n.\n",
}

BAD_CLASSES = {"invalid utf-8": b"\xff\xfe", "repeated": b"cat\ncat\n", "others": b"dog\n"}

YAML_LAUGHS = b"a0: &a0 [x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 10)
)
BAD_YAML = {
    "empty": b"",
    "scalar": b"42",
    "list": b"- a\n- b\n",
    "zero bytes": b"\0\0\0",
    "binary": bytes(range(256)),
    "invalid utf-8": YAML.replace(b"cat", b"\xff\xfe"),
    "half of utf-16": b"\xff\xfe" + YAML,
    "unclosed": b"names: [cat, dog\n",
    "unclosed quote": b'names: ["cat]\n',
    "tab": b"names:\n\t- cat\n",
    "billion laughs": YAML_LAUGHS + YAML,
    "alias": b"names: &n [cat]\nother: *n\ntrain: images/train\n",
    "alias of itself": b"&a [*a]",
    "merge": b"x: &x {a: b}\ny:\n  <<: *x\n" + YAML,
    "call": b"!!python/object/apply:os.system ['touch hacked']\n",
    "new object": b"names: !!python/object/new:os.system ['touch hacked']\n",
    "name": b"names: [!!python/name:os.system]\ntrain: images/train\n",
    "module": b"names: [!!python/module:os]\ntrain: images/train\n",
    "own tag": b"names: !x [cat]\ntrain: images/train\n",
    "deep": b"names: " + b"[" * DEEP,
    "deep and closed": b"names: " + b"[" * 5000 + b"]" * 5000,
    "deep mapping": b"{a: " * 5000,
    "deep blocks": b"".join(b" " * i + b"a:\n" for i in range(1500)),
    "large": YAML + b"# " + b"x" * 2_000_000,
    "no names": b"train: images/train\n",
    "names of nothing": b"train: images/train\nnames: []\n",
    "names in names": b"train: images/train\nnames: [[cat]]\n",
    "names with gaps": b"train: images/train\nnames: {0: cat, 7: dog}\n",
    "names with words": b"train: images/train\nnames: {cat: 0}\n",
    "names by huge number": b"train: images/train\nnames: {%s: cat}\n" % (b"9" * 5000),
    "other count": YAML + b"nc: 3\n",
    "huge count": b"train: images/train\nnc: 99999999999999999999\n",
    "no splits": b"names: [cat]\n",
    "nowhere": b"train: nowhere\nnames: [cat]\n",
    "zero byte in a path": b'train: "a\\0b"\nnames: [cat]\n',
    "long path": b"train: " + b"x" * 10_000 + b"\nnames: [cat]\n",
    "a device": b"train: /dev/zero\nnames: [cat]\n",
    "path is a list": b"path: [a]\n" + YAML[8:],
    "two documents": YAML + b"---\n" + YAML,
    "empty folder": b"train: labels\nnames: [cat]\n",
}

BAD_LABELS = {
    "zero bytes": b"\0" * 50,
    "binary": bytes(range(256)) * 2,
    "invalid utf-8": b"0 0.5 0.5 0.5 \xff\xfe\n",
    "words": b"cat 0.5 0.5 0.5 0.5\n",
    "few columns": b"0 0.5 0.5 0.5\n",
    "even columns": b"0 0.5 0.5 0.5 0.5 0.9\n",
    "one column": b"0\n",
    "commas": b"0,0.5,0.5,0.5,0.5\n",
    "nan": b"0 nan 0.5 0.5 0.5\n",
    "inf": b"0 0.5 inf 0.5 0.5\n",
    "1e400": b"0 0.5 0.5 1e400 0.5\n",
    "1e308": b"0 0.5 0.5 1e308 1e308\n",
    "nan in a polygon": b"0 0.1 0.1 0.5 0.1 0.5 nan\n",
    "class of nothing": b"nan 0.5 0.5 0.5 0.5\n",
    "endless class": b"inf 0.5 0.5 0.5 0.5\n",
    "half a class": b"0.5 0.5 0.5 0.5 0.5\n",
    "negative class": b"-1 0.5 0.5 0.5 0.5\n",
    "unknown class": b"2 0.5 0.5 0.5 0.5\n",
    "huge class": b"1e300 0.5 0.5 0.5 0.5\n",
    "class of 5000 digits": b"9" * 5000 + b" 0.5 0.5 0.5 0.5\n",
    "pixels": b"0 16 12 8 8\n",
    "flat": b"0 0.5 0.5 0 0.5\n",
    "negative width": b"0 0.5 0.5 -0.5 0.5\n",
    "past the border": b"0 0.9 0.5 0.5 0.5\n",
    "repeated": LABEL + LABEL,
    "long line": b"0" + b" 0.5" * 200_001 + b"\n",
    "xml": XML,
    "json": JSON,
}


def coco(**changes):
    return json.dumps(COCO | changes).encode()


def coco_box(**changes):
    return coco(annotations=[COCO["annotations"][0] | changes])


def coco_image(**changes):
    return coco(images=[COCO["images"][0] | changes])


BAD_JSON = {
    "empty": b"",
    "spaces": b" \n ",
    "zero bytes": b"\0" * 64,
    "binary": bytes(range(256)),
    "list": b"[]",
    "scalar": b"42",
    "null": b"null",
    "cut off": JSON[: len(JSON) // 2],
    "trailing comma": JSON[:-1] + b",}",
    "text after the end": JSON + b"x",
    "two documents": JSON + JSON,
    "single quotes": JSON.replace(b'"', b"'"),
    "invalid utf-8": JSON.replace(b"cat", b"\xff\xfe"),
    "utf-16": JSON.decode().encode("utf-16"),
    "deep": b"[" * DEEP,
    "deep in a box": JSON.replace(b"[1, 1, 5, 5]", b"[" * DEEP + b"]" * DEEP),
    "deep objects": b'{"a":' * DEEP,
    "nan": JSON.replace(b"[1, 1,", b"[NaN, 1,"),
    "infinity": JSON.replace(b"[1, 1,", b"[-Infinity, 1,"),
    "1e400": JSON.replace(b"[1, 1,", b"[1e400, 1,"),
    "1e308": coco_box(bbox=[-1e308, 0, 1e308, 1e308]),
    "huge number": JSON.replace(b"[1, 1,", b"[" + b"9" * 100_000 + b", 1,"),
    "numbers as texts": coco_box(bbox=["1", "1", "5", "5"]),
    "three numbers": coco_box(bbox=[1, 1, 5]),
    "five numbers": coco_box(bbox=[1, 1, 5, 5, 5]),
    "no box": coco_box(bbox=None),
    "box of objects": coco_box(bbox=[{}, [], None, True]),
    "flat": coco_box(bbox=[1, 1, 0, 5]),
    "negative": coco_box(bbox=[1, 1, -5, 5]),
    "outside": coco_box(bbox=[100, 100, 5, 5]),
    "unknown class": coco_box(category_id=2),
    "class as text": coco_box(category_id="cat"),
    "huge class": coco_box(category_id=10**30),
    "unknown image": coco_box(image_id=2),
    "image as text": coco_box(image_id="one"),
    "boxes in an object": coco(annotations={}),
    "boxes that are none": coco(annotations=[1, "a", None]),
    "images of nothing": coco(images=None),
    "images that are none": coco(images=[[]]),
    "no images": json.dumps({"annotations": [], "categories": []}).encode(),
    "no categories": json.dumps({"annotations": [], "images": []}).encode(),
    "categories without names": coco(categories=[{"id": 1}]),
    "categories twice": coco(categories=COCO["categories"] * 2),
    "images twice": coco(images=COCO["images"] * 2),
    "boxes twice": coco(annotations=COCO["annotations"] * 2),
    "leads out": coco_image(file_name="../../../secret.dat"),
    "absolute": coco_image(file_name="/etc/passwd"),
    "zero byte in a name": coco_image(file_name="a\0.jpg"),
    "empty name": coco_image(file_name=""),
    "name of a number": coco_image(file_name=7),
    "lone surrogate": coco_image(file_name="\ud800.jpg"),
    "long name": coco_image(file_name="x" * 3000),
    "size of nothing": coco_image(width=0),
    "negative size": coco_image(width=-32),
    "endless size": JSON.replace(b'"width": 32', b'"width": 1e999'),
    "huge size": coco_image(width=10**30),
    "size as text": coco_image(width="wide"),
    "other size": coco_image(width=33),
    "image number too large": coco_image(id=10**30),
}

NAMED = [
    (kind, name, content)
    for kind, cases in {
        "xml": BAD_XML,
        "list": BAD_LISTS,
        "classes": BAD_CLASSES,
        "yaml": BAD_YAML,
        "label": BAD_LABELS,
        "json": BAD_JSON,
    }.items()
    for name, content in cases.items()
]


@pytest.mark.parametrize(
    ("kind", "content"),
    [pytest.param(kind, content, id=f"{kind}: {name}") for kind, name, content in NAMED],
)
def test_hostile_content_is_said(tmp_path, monkeypatch, capsys, kind, content):
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "set"
    target = make(root, kind)
    target.write_bytes(content)
    (target.parent / "secret.dat").write_text(SECRET)
    (tmp_path / "secret.dat").write_text(SECRET)
    said = check(root)
    assert said
    assert SECRET not in "".join(said)
    assert max(map(len, said)) < 5000
    assert not list(tmp_path.rglob("hacked"))
    check_by_command(root, capsys)


def in_place_of_a_file(how, path):
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how == "dangling link":
        path.symlink_to(path.with_name("nowhere"))
    elif how == "link to itself":
        path.symlink_to(path)
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"x")
        path.chmod(0)


@pytest.mark.parametrize(
    "how", ["folder", "dangling link", "link to itself", "pipe", "device", "closed"]
)
@pytest.mark.parametrize("kind", ["xml", "list", "yaml", "label", "json", "image"])
def test_something_else_in_place_of_a_file(tmp_path, capsys, kind, how):
    if how == "closed" and os.geteuid() == 0:
        pytest.skip("root may read everything")
    target = make(tmp_path, "label" if kind == "image" else kind)
    in_place_of_a_file(how, tmp_path / "images/train/a.jpg" if kind == "image" else target)
    assert check(tmp_path) or (kind, how) == ("image", "folder")  # a folder is no image at all
    check_by_command(tmp_path, capsys)


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
    target = make(tmp_path, kind)
    target.write_bytes(mutated(VALID[kind], [seed, len(kind)]))
    check(tmp_path)


@pytest.mark.parametrize("part", range(1, 10))
@pytest.mark.parametrize("kind", VALID)
def test_truncated_annotations(tmp_path, kind, part):
    target = make(tmp_path, kind)
    target.write_bytes(VALID[kind][: len(VALID[kind]) * part // 10])
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


def png(width, height, body, kind=b"IDAT"):
    def chunk(name, content):
        head = struct.pack(">I", len(content)) + name + content
        return head + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(kind, body) + chunk(b"IEND", b"")


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
def test_hostile_shards(tmp_path, capsys, name):
    root = tmp_path / "set"
    make(root, "json")
    (root / "images/train/a.jpg").unlink()
    (root / "images/train").rmdir()
    (root / "images").rmdir()
    (root / "train-0.tar").write_bytes(BAD_TARS[name])
    before = sorted(tmp_path.rglob("*"))
    assert check(root)
    check_by_command(root, capsys)
    assert sorted(tmp_path.rglob("*")) == before  # nothing was extracted


def test_what_is_passed_over_may_be_deep(tmp_path):
    deep = b'{"info": ' + b"[" * DEEP + b"]" * DEEP + b"," + JSON[1:]
    make(tmp_path, "json").write_bytes(deep)
    assert check(tmp_path) == []


def test_the_sound_sets_that_the_cases_start_from_are_sound(tmp_path):
    for kind in VALID:
        make(tmp_path / kind, kind)
        assert check(tmp_path / kind) == []


def test_there_are_many_cases():
    fuzzed = len(VALID) * (25 + 9) + len(IMAGES) * 21
    assert len(NAMED) + fuzzed + len(BOMBS) + len(BAD_TARS) >= 200

"""Damage data sets of several layouts in many ways, and see how reading and checking them ends.

    python -m benchmarks.damage [--layouts voc coco yolo] [--quick]

Each row is one damaged data set. It is opened with ``load_dataset``, then checked with
``alphaiou data check --json``, which may find the index in the cache. The outcome is one of

- ``read``: the data set opens; what is left out is in the findings of the check,
- ``refused``: an error of the package, whose message names a file of the data set,
- ``unclear``: an error of the package that does not name a file,
- ``crashed``: any other error, or a check that does not print JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import struct
import sys
import tempfile
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from alphaiou.cli import main as command_line
from alphaiou.data.dataset import load_dataset
from alphaiou.errors import AlphaIoUError
from benchmarks.record import FOLDER, Record, Row, conditions, write_record

#: Of a quick run: every how many damages one is tried.
QUICK_STEP = 9
OUTCOMES = ("read", "refused", "unclear", "crashed")
DEEP = 100_000

# --- images ---------------------------------------------------------------------------------------


def encoded_image(fmt: str) -> bytes:
    """A small image of noise."""
    pixels = np.random.default_rng(3).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert("P") if fmt == "GIF" else image).save(file, fmt)
    return file.getvalue()


def png(
    width: int, height: int, body: bytes, kind: bytes = b"IDAT", *, interlaced: bool = False
) -> bytes:
    """A PNG of 8-bit RGB with one chunk between header and end."""

    def chunk(name: bytes, content: bytes) -> bytes:
        head = struct.pack(">I", len(content)) + name + content
        return head + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, interlaced)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(kind, body) + chunk(b"IEND", b"")


IMAGES = {fmt: encoded_image(fmt) for fmt in ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")}
JPEG = IMAGES["JPEG"]

# --- data sets that are sound ---------------------------------------------------------------------

XML = b"""<annotation><size><width>32</width><height>24</height><depth>3</depth></size>
<object><name>cat</name><difficult>0</difficult>
<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>30</xmax><ymax>20</ymax></bndbox></object></annotation>"""
YAML = b"path: .\ntrain: images/train\nval: val.txt\nnames:\n  0: cat\n  1: dog\n"
PATHS = b"images/train/a.jpg\nimages/train/b.jpg\n"
LABEL = b"0 0.5 0.5 0.25 0.5\n1 0.25 0.25 0.125 0.25\n"
CORNERS = b"0 0.25 0.25 0.5 0.3 0.45 0.6 0.2 0.55\n1 0.6 0.1 0.9 0.1 0.9 0.4 0.6 0.4\n"
DOTA = b"imagesource:GoogleEarth\ngsd:0.146\n8 6 16 7 15 14 7 13 cat 0\n9 2 20 2 20 9 9 9 dog 1\n"
COCO: dict[str, list[dict[str, object]]] = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 32, "height": 24}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5], "area": 25}],
    "categories": [{"id": 1, "name": "cat"}],
}
JSON = json.dumps(COCO).encode()

#: The layout and the path of each kind of file that is damaged, and its content in a sound set.
KINDS: dict[str, tuple[str, str, bytes]] = {
    "xml": ("voc", "VOC2007/Annotations/a.xml", XML),
    "list": ("voc", "VOC2007/ImageSets/Main/train.txt", b"a\nb\n"),
    "classes": ("voc", "classes.txt", b"cat\ndog\n"),
    "voc image": ("voc", "VOC2007/JPEGImages/a.jpg", JPEG),
    "yaml": ("yolo", "data.yaml", YAML),
    "paths": ("yolo", "val.txt", PATHS),
    "label": ("yolo", "labels/train/a.txt", LABEL),
    "yolo image": ("yolo", "images/train/a.jpg", JPEG),
    "json": ("coco", "annotations/train.json", JSON),
    "coco image": ("coco", "images/train/a.jpg", JPEG),
    "oriented label": ("yolo-obb", "labels/train/a.txt", CORNERS),
    "dota label": ("dota", "train/labelTxt/a.txt", DOTA),
}
SOUND: dict[str, dict[str, bytes]] = {
    "voc": {
        "VOC2007/Annotations/a.xml": XML,
        "VOC2007/Annotations/b.xml": XML,
        "VOC2007/ImageSets/Main/train.txt": b"a\nb\n",
        "VOC2007/JPEGImages/a.jpg": JPEG,
        "VOC2007/JPEGImages/b.jpg": JPEG,
    },
    "yolo": {
        "data.yaml": YAML,
        "val.txt": PATHS,
        "images/train/a.jpg": JPEG,
        "images/train/b.jpg": JPEG,
        "labels/train/a.txt": LABEL,
        "labels/train/b.txt": LABEL,
    },
    "coco": {"annotations/train.json": JSON, "images/train/a.jpg": JPEG},
    "yolo-obb": {
        "data.yaml": b"train: images/train\nnames: [cat, dog]\n",
        "images/train/a.jpg": JPEG,
        "images/train/b.jpg": JPEG,
        "labels/train/a.txt": CORNERS,
        "labels/train/b.txt": CORNERS + CORNERS.replace(b"0.6", b"0.61"),
    },
    "dota": {
        "train/images/a.jpg": JPEG,
        "train/images/b.jpg": JPEG,
        "train/labelTxt/a.txt": DOTA,
        "train/labelTxt/b.txt": DOTA,
    },
}


# --- content of files -----------------------------------------------------------------------------


def with_doctype(declarations: bytes, use: bytes) -> bytes:
    """The annotation with a document type, and a class name that uses it."""
    return b"<!DOCTYPE annotation [%s]>%s" % (declarations, XML.replace(b"cat", use))


LAUGHS = b"".join(
    b'<!ENTITY l%d "%s">' % (i, b"lol" if i == 0 else b"&l%d;" % (i - 1) * 10) for i in range(10)
)


def corners(value: bytes) -> bytes:
    """The annotation with another first corner."""
    return XML.replace(b"<xmin>1<", b"<xmin>" + value + b"<")


BAD_XML = {
    "byte order mark": b"\xef\xbb\xbf" + XML,
    "utf-16 with its mark": XML.decode().encode("utf-16"),
    "blank name": XML.replace(b"cat", b" \n "),
    "two names": XML.replace(b"</name>", b"</name><name>dog</name>"),
    "two boxes": XML.replace(b"</bndbox>", b"</bndbox><bndbox><xmin>9</xmin></bndbox>"),
    "attributes in place of elements": b'<annotation><object name="cat" xmin="1"/></annotation>',
    "negative": corners(b"-7"),
    "repeated objects": XML.replace(b"</object>", b"</object>" + XML[XML.index(b"<object>") : -13]),
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
    "byte order mark": b"\xef\xbb\xbfa\nb\n",
    "utf-16": "a\nb\n".encode("utf-16"),
    "with suffixes": b"a.jpg\nb.jpg\n",
    "three columns": b"a 1 1\nb 0 0\n",
    "blank lines": b"\n \n\n",
    "of windows": b"a\r\nb\r\n",
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

BAD_CLASSES = {
    "empty": b"",
    "byte order mark": b"\xef\xbb\xbfcat\n",
    "utf-16": "cat\n".encode("utf-16"),
    "invalid utf-8": b"\xff\xfe",
    "repeated": b"cat\ncat\n",
    "others": b"dog\n",
    "blank lines": b"\n \ncat\n\n",
    "binary": bytes(range(256)),
    "large": b"x" * (1 << 24) + b"\ncat\n",
}

YAML_LAUGHS = b"a0: &a0 [x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 10)
)
BAD_YAML = {
    "byte order mark": b"\xef\xbb\xbf" + YAML,
    "utf-16 with its mark": YAML.decode().encode("utf-16"),
    "empty class name": b"train: images/train\nnames: [cat, '']\n",
    "empty class name by number": b"train: images/train\nnames: {0: cat, 1: }\n",
    "classes of one name": b"train: images/train\nnames: [cat, cat]\n",
    "one number twice": b"train: images/train\nnames: {0: cat, 0: dog}\n",
    "negative number": b"train: images/train\nnames: {-1: cat, 0: dog}\n",
    "names in a text": b"train: images/train\nnames: cat dog\n",
    "count in words": YAML + b"nc: two\n",
    "negative count": b"train: images/train\nnc: -2\n",
    "count alone": b"train: images/train\nnc: 1\n",
    "a split twice": YAML + b"train: images/val\n",
    "split in a mapping": b"train: {a: images/train}\nnames: [cat, dog]\n",
    "split of nothing": b"train:\nnames: [cat, dog]\n",
    "split listed twice": b"train: [images/train, images/train]\nnames: [cat, dog]\n",
    "path to nowhere": b"path: nowhere\n" + YAML[8:],
    "path to an image": b"path: images/train/a.jpg\n" + YAML[8:],
    "list with a zero byte": b"train: list.txt\nnames: [cat, dog]\n",
    "image in place of a list": b"train: images/train/a.jpg\nnames: [cat, dog]\n",
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
    "empty": b"",
    "byte order mark": b"\xef\xbb\xbf" + LABEL,
    "utf-16": LABEL.decode().encode("utf-16"),
    "of windows": LABEL.replace(b"\n", b"\r\n"),
    "cut off": LABEL[:-9],
    "tabs": LABEL.replace(b" ", b"\t"),
    "underscores": b"1_0 0.5 0.5 0.5 0.5\n",
    "large": LABEL * 400_000,
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


BAD_CORNERS = {
    "empty": b"",
    "binary": bytes(range(256)) * 2,
    "of windows": CORNERS.replace(b"\n", b"\r\n"),
    "a box": b"0 0.5 0.5 0.25 0.5\n",
    "three corners": b"0 0.25 0.25 0.5 0.3 0.45 0.6\n",
    "nan": CORNERS.replace(b"0.45", b"nan"),
    "1e308": CORNERS.replace(b"0.45", b"1e308"),
    "on a line": b"0 0.1 0.1 0.2 0.2 0.3 0.3 0.4 0.4\n",
    "at one point": b"0" + b" 0.5" * 8 + b"\n",
    "crossed": b"0 0.25 0.25 0.45 0.6 0.5 0.3 0.2 0.55\n",
    "pixels": b"0 8 6 16 7 15 14 7 13\n",
    "unknown class": b"7" + CORNERS[1:],
    "repeated": CORNERS + CORNERS,
}

BAD_DOTA = {
    "empty": b"",
    "byte order mark": b"\xef\xbb\xbf" + DOTA,
    "utf-16": DOTA.decode().encode("utf-16"),
    "binary": bytes(range(256)) * 2,
    "of windows": DOTA.replace(b"\n", b"\r\n"),
    "no boxes": b"imagesource:GoogleEarth\ngsd:null\n",
    "few columns": b"8 6 16 7 15 14 cat 0\n",
    "many columns": b"8 6 16 7 15 14 7 13 a cat 0\n",
    "words": b"a b c d e f g h cat 0\n",
    "difficult in words": DOTA.replace(b"cat 0", b"cat no"),
    "nan": DOTA.replace(b"16", b"nan"),
    "1e400": DOTA.replace(b"16", b"1e400"),
    "on a line": b"1 1 2 2 3 3 4 4 cat 0\n",
    "crossed": b"8 6 15 14 16 7 7 13 cat 0\n",
    "beyond the image": DOTA.replace(b"16 7 15 14", b"160 7 150 14"),
    "outside": b"80 60 160 70 150 140 70 130 cat 0\n",
    "repeated": DOTA + DOTA[DOTA.index(b"8 6") :],
    "long name": b"8 6 16 7 15 14 7 13 " + b"c" * 100_000 + b" 0\n",
}


def coco(**changes: object) -> bytes:
    """The COCO file with other lists."""
    return json.dumps(COCO | changes).encode()


def coco_box(**changes: object) -> bytes:
    """The COCO file with another box."""
    return coco(annotations=[COCO["annotations"][0] | changes])


def coco_image(**changes: object) -> bytes:
    """The COCO file with another image."""
    return coco(images=[COCO["images"][0] | changes])


BAD_JSON = {
    "byte order mark": b"\xef\xbb\xbf" + JSON,
    "classes of one name": coco(categories=[{"id": 1, "name": "cat"}, {"id": 2, "name": "cat"}]),
    "empty class name": coco(categories=[{"id": 1, "name": ""}]),
    "blank class name": coco(categories=[{"id": 1, "name": " "}]),
    "class name of null": coco(categories=[{"id": 1, "name": None}]),
    "class name with a surrogate": coco(categories=[{"id": 1, "name": "\ud800"}]),
    "no classes": coco(categories=[]),
    "no boxes": coco(annotations=[]),
    "no image": coco(images=[]),
    "a list twice": JSON[:-1] + b', "images": []}',
    "negative id": coco_image(id=-1),
    "id as text": coco_image(id="1"),
    "id of half": coco_image(id=1.5),
    "id of true": coco_image(id=True),
    "area of nan": JSON.replace(b'"area": 25', b'"area": NaN'),
    "negative area": coco_box(area=-25),
    "area as text": coco_box(area="25"),
    "crowd as text": coco_box(iscrowd="yes"),
    "crowd of seven": coco_box(iscrowd=7),
    "images sharing a file": coco(images=[COCO["images"][0], COCO["images"][0] | {"id": 2}]),
    "name of a folder": coco_image(file_name="."),
    "newline in a name": coco_image(file_name="a\n.jpg"),
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

#: Content to write in place of a file, by the kind of the file.
CONTENT: dict[str, dict[str, bytes]] = {
    "xml": BAD_XML,
    "list": BAD_LISTS,
    "classes": BAD_CLASSES,
    "yaml": BAD_YAML,
    "paths": {
        name: content.replace(b"a\n", b"images/train/a.jpg\n")
        for name, content in BAD_LISTS.items()
    },
    "label": BAD_LABELS,
    "json": BAD_JSON,
    "oriented label": BAD_CORNERS,
    "dota label": BAD_DOTA,
}
for _kind, _cases in CONTENT.items():
    _sound = KINDS[_kind][2]
    _cases |= {f"first {part}0 %": _sound[: len(_sound) * part // 10] for part in (3, 6, 9)}

#: The same for images, of all layouts.
BAD_IMAGES = {
    "empty": b"",
    "zero bytes": bytes(100),
    "text": b"no image",
    "html": b"<!DOCTYPE html><html><br></html>",
    "cut in the header": JPEG[:20],
    "cut off": JPEG[: len(JPEG) * 2 // 3],
    "cut off and closed": JPEG[: len(JPEG) * 2 // 3] + b"\xff\xd9",
    "another size": encoded_image("JPEG").replace(b"\0\x18\0\x20\x03", b"\0\x20\0\x18\x03"),
    "jpeg of 4 gigapixels": JPEG.replace(b"\0\x18\0\x20\x03", b"\xff\xff\xff\xff\x03"),
    "png with another name": IMAGES["PNG"],
    "png of few rows": png(32, 24, zlib.compress((b"\0" + b"x" * 96) * 9)),
    "png of no size": png(0, 0, zlib.compress(b"")),
    "png of 2.5 gigapixels": png(50_000, 50_000, zlib.compress(b"\0")),
    "png with a long text": png(1, 1, b"a\0\0" + zlib.compress(b"\0" * 100_000_000), b"zTXt"),
    "webp cut off": IMAGES["WEBP"][: len(IMAGES["WEBP"]) // 2],
    "gif cut off": IMAGES["GIF"][: len(IMAGES["GIF"]) // 2],
    "bytes changed": JPEG[:300] + bytes(50) + JPEG[350:],
}
CONTENT |= dict.fromkeys(("voc image", "yolo image", "coco image"), BAD_IMAGES)

# --- other damage ---------------------------------------------------------------------------------


def in_place_of_a_file(how: str, path: Path) -> None:
    """Put a folder, a link, a pipe or a device where a file was, or nothing."""
    path.unlink(missing_ok=True)
    if how == "folder":
        path.mkdir()
    elif how == "full folder":
        path.mkdir()
        (path / "a.txt").write_text("a")
    elif how == "dangling link":
        path.symlink_to(path.with_name("nowhere"))
    elif how == "link to itself":
        path.symlink_to(path)
    elif how == "loop of links":
        path.symlink_to(path.with_name("other"))
        path.with_name("other").symlink_to(path)
    elif how == "link to its folder":
        path.symlink_to(path.parent)
    elif how == "pipe":
        os.mkfifo(path)
    elif how == "device":
        path.symlink_to("/dev/zero")


PLACES = (
    "nothing",
    "folder",
    "full folder",
    "dangling link",
    "link to itself",
    "loop of links",
    "link to its folder",
    "pipe",
    "device",
)


def in_place_of_a_folder(how: str, folder: Path) -> None:
    """Move a folder away, or put something else in its place."""
    if how == "moved":
        folder.rename(folder.with_name("elsewhere"))
        return
    shutil.rmtree(folder)
    if how == "a file":
        folder.write_text("a")
    elif how == "empty":
        folder.mkdir()
    elif how == "a link to itself":
        folder.symlink_to(folder)
    elif how == "a link to the folder above":
        folder.symlink_to(folder.parent)


FOLDERS = ("moved", "a file", "empty", "a link to itself", "a link to the folder above")


def add(how: str, folder: Path) -> None:
    """Put something more into a folder of sound files."""
    if how.startswith("a loop called "):
        loop = folder / how.removeprefix("a loop called ")
        loop.symlink_to(loop)
    elif how == "a folder called x.jpg":
        (folder / "x.jpg").mkdir()
    elif how == "a pipe called x.jpg":
        os.mkfifo(folder / "x.jpg")
    elif how == "a link to itself":
        (folder / "again").symlink_to(folder)
    elif how == "a deep folder":
        folder.joinpath(*["d" * 30] * 60).mkdir(parents=True)
    elif how == "a name that is not utf-8":
        Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.jpg")).write_bytes(JPEG)
    elif how == "a name with a line break":
        (folder / "a\nb.jpg").write_bytes(JPEG)
    elif how == "an image of the same stem":
        (folder / "a.png").write_bytes(IMAGES["PNG"])
    elif how == "an image of the same name in capitals":
        (folder / "A.JPG").write_bytes(JPEG)


ADDITIONS = (
    *(f"a loop called x.{suffix}" for suffix in ("jpg", "txt", "xml", "json", "yaml")),
    *("a folder called x.jpg", "a pipe called x.jpg", "a link to itself", "a deep folder"),
    *("a name that is not utf-8", "a name with a line break"),
    *("an image of the same stem", "an image of the same name in capitals"),
)

# --- the battery ----------------------------------------------------------------------------------


class Damage(NamedTuple):
    """One way to damage the sound data set of a layout.

    Attributes:
        layout: The layout.
        file: The file or folder that is damaged, relative to the data set.
        name: What is done to it.
        apply: Does it, given the path.
    """

    layout: str
    file: str
    name: str
    apply: Callable[[Path], object]


def damages() -> Iterator[Damage]:
    """Other content, something else in place of files and folders, and additions to folders."""
    folders = set()
    for kind, (layout, file, _) in KINDS.items():
        for name, content in CONTENT[kind].items():
            yield Damage(layout, file, name, partial(Path.write_bytes, data=content))
        for how in PLACES:
            yield Damage(layout, file, how, partial(in_place_of_a_file, how))
        folder = file.rpartition("/")[0] or "."
        if (layout, folder) in folders:
            continue
        folders.add((layout, folder))
        for how in FOLDERS if folder != "." else ():
            yield Damage(layout, folder, how, partial(in_place_of_a_folder, how))
        for how in ADDITIONS:
            yield Damage(layout, folder, f"with {how}", partial(add, how))


def damaged_set(root: Path, damage: Damage) -> None:
    """Write the sound data set of a layout, and damage it."""
    for name, content in SOUND[damage.layout].items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    damage.apply(root / damage.file)


def attempt(root: Path) -> Row:
    """Open and check a data set; the row says how that ended."""
    outcome, message, started = "read", "", time.perf_counter()
    try:
        load_dataset(root, "train")
    except AlphaIoUError as error:
        message = str(error)
        outcome = "refused" if str(root) in message else "unclear"
    except Exception as error:  # what this looks for
        outcome, message = "crashed", f"load_dataset: {type(error).__name__}: {error}"
    report = check_by_command(root)
    if isinstance(report, str):
        outcome, message = "crashed", f"check: {report}"
    elif outcome != "crashed" and str(root) not in (report["error"] or str(root)):
        outcome, message = "unclear", str(report["error"])
    message = message.replace(f"{root}/", "").replace(str(root), ".")[:300]
    return {
        "outcome": outcome,
        "findings": {} if isinstance(report, str) else report["counts"],
        "seconds": round(time.perf_counter() - started, 3),
        "message": message.encode(errors="backslashreplace").decode(),
    }


def check_by_command(root: Path) -> Record | str:
    """The JSON of ``alphaiou data check``, or why there is none."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command_line(["data", "check", str(root), "--json", "--workers", "1"])
        report: Record = json.loads(out.getvalue())
    except Exception as error:  # what this looks for
        return f"{type(error).__name__}: {error}; {err.getvalue()[-200:]}"
    return report if code == (0 if report["ok"] else 1) else f"exit code {code}"


def main(argv: Sequence[str] | None = None) -> int:
    """Try every damage; the record is written after each layout, in case the run is interrupted."""
    options = _options(argv)
    path = options.out or FOLDER / "damage-cpu.json"
    record: Record = {
        "record": "damage",
        **conditions(torch.device("cpu"), "numpy", "pillow", "msgspec", "pyyaml"),
        "settings": {"layouts": options.layouts, "quick": options.quick},
        "complete": False,
        "counts": {},
        "rows": [],
    }
    chosen = list(damages())[:: QUICK_STEP if options.quick else 1]
    for layout in options.layouts:
        rows = [_tried(damage) for damage in chosen if damage.layout == layout]
        outcomes = Counter(row["outcome"] for row in rows)
        counts = {"tried": len(rows)} | {outcome: outcomes[outcome] for outcome in OUTCOMES}
        record["counts"][layout] = counts
        record["rows"] += rows
        record["complete"] = layout == options.layouts[-1]
        write_record(record, path)
        print(f"{layout}: {', '.join(f'{count} {name}' for name, count in counts.items())}")
        for row in rows:
            if row["outcome"] not in ("read", "refused"):
                print(f"  {row['file']}, {row['damage']}: {row['outcome']}: {row['message']}")
    print(f"wrote {path}")
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.damage", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--layouts", nargs="+", choices=SOUND, default=list(SOUND))
    parser.add_argument("--quick", action="store_true", help=f"one damage in {QUICK_STEP}")
    parser.add_argument("--out", type=Path, help="path of the record; benchmarks/damage-cpu.json")
    return parser.parse_args(argv)


def _tried(damage: Damage) -> Row:
    """The row of one damage, of a data set and a cache of its own."""
    about = {"layout": damage.layout, "file": damage.file, "damage": damage.name}
    before = os.environ.get("ALPHAIOU_CACHE")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of decoders
        os.environ["ALPHAIOU_CACHE"] = f"{folder}/cache"
        try:
            damaged_set(Path(folder, "set"), damage)
            return about | attempt(Path(folder, "set"))
        finally:
            if before is None:
                del os.environ["ALPHAIOU_CACHE"]
            else:
                os.environ["ALPHAIOU_CACHE"] = before


if __name__ == "__main__":
    sys.exit(main())

"""voc320 made from PASCAL VOC, compared with the voc320 that the records are of."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alphaiou.data.dataset import load_dataset
from alphaiou.data.problems import DataError
from studies.voc320 import make
from studies.voc320.make import Make, annotation_text, find_year, main, write_shards
from studies.voc320.protocol import split_data

SHARED = Path(__file__).parents[3] / "shared/data"
VOC320 = SHARED / "voc320"
needs_data = pytest.mark.skipif(
    not VOC320.is_dir(), reason=f"PASCAL VOC is not part of the repository: {SHARED} is missing"
)
LISTS = {split: (make.LISTS / f"{split}.txt").read_text().split() for split in make.YEARS}


# Against voc320


def reference(split):
    return json.loads((VOC320 / f"annotations/{split}.json").read_text())


def images_of(folder, split):
    """The name and the bytes of each image in the shards."""
    for path in sorted(folder.glob(f"{split}-*.tar")):
        with tarfile.open(path) as shard:
            yield from ((m.name, shard.extractfile(m).read()) for m in shard.getmembers())


@needs_data
def test_untouched_images_of_voc_give_the_bytes_of_voc320(tmp_path, capsys):
    assert main(Make((SHARED / "voc-sample/VOCdevkit",), tmp_path, partial=True)) == 0
    assert "train: 20 images with 45 boxes" in capsys.readouterr().out
    for split in make.YEARS:
        made = json.loads((tmp_path / f"annotations/{split}.json").read_text())
        whole = reference(split)
        names = {image["file_name"] for image in made["images"]}
        # The lists of the sample are its own, and so is the subset of an image.
        assert [{**image, "subset": ""} for image in made["images"]] == [
            {**image, "subset": ""} for image in whole["images"] if image["file_name"] in names
        ]
        numbers = {image["id"] for image in made["images"]}
        expected = [b for b in whole["annotations"] if b["image_id"] in numbers]
        assert [{**box, "id": 0} for box in made["annotations"]] == [
            {**box, "id": 0} for box in expected
        ]
        stored = dict(images_of(tmp_path, split))
        assert len(stored) == len(names)
        same = {name: data for name, data in images_of(VOC320, split) if name in stored}
        for name, data in stored.items():
            pixels, theirs = (
                np.asarray(Image.open(io.BytesIO(one)), dtype=float) for one in (data, same[name])
            )
            assert pixels.shape == theirs.shape
            assert np.abs(pixels - theirs).mean() < 1, "another decoder may differ a little"
        if Image.__version__ == "13.0.0":
            assert stored == same


@needs_data
@pytest.mark.parametrize("split", make.YEARS)
def test_the_lists_checksums_and_shards_are_those_of_voc320(split):
    whole = reference(split)
    assert [f"{name}.webp" for name in LISTS[split]] == [i["file_name"] for i in whole["images"]]
    text = annotation_text(split, whole["images"], whole["annotations"])
    assert hashlib.sha256(text.encode()).hexdigest() == make.ANNOTATIONS[split]
    shards, size = [0], 0
    for path in sorted(VOC320.glob(f"{split}-*.tar")):
        with tarfile.open(path) as shard:
            for member in shard.getmembers():
                size += member.size + make.HEADER
                if size > make.SHARD:
                    shards, size = [*shards, 0], member.size + make.HEADER
                shards[-1] += 1
    counts = {"train": [4441, 4393, 2704], "test": [4434, 574]}
    assert shards == counts[split]


def test_the_lists_have_no_absent_image():
    assert not {"005042", "007284", "009623"} & set(LISTS["test"])
    assert [len(LISTS[split]) for split in make.YEARS] == [11_538, 5_008]


# A devkit of our own

OBJECT = """<object><name>{name}</name><truncated>1</truncated><difficult>0</difficult>
<part><name>head</name><bndbox><xmin>2</xmin><ymin>2</ymin><xmax>3</xmax><ymax>3</ymax></bndbox>
</part><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"""
SIZES = ((50, 33), (33, 50), (50, 50))
#: The stored size of each image, and its two boxes, worked out by hand: 5 · 211 / 33 = 31.97.
STORED = (
    ((320, 211), [0, 0, 320, 211], [64, 31.97, 64, 127.88]),
    ((211, 320), [0, 0, 211, 320], [63.94, 32, 63.94, 128]),
    ((320, 320), [0, 0, 320, 320], [64, 32, 64, 128]),
)


def xml(*corners, name="dog"):
    objects = "".join(OBJECT.format(*four, name=name) for four in corners)
    return f"<annotation>{objects}</annotation>"


def expected_text(split, year, count):
    images, boxes = [], []
    for row, (before, (after, *found)) in enumerate(zip(SIZES, STORED, strict=True)):
        if row < count:
            image = {"id": row + 1, "file_name": f"{year}_{row}.webp", "width": after[0]}
            image |= {"height": after[1], "orig_width": before[0], "orig_height": before[1]}
            images.append({**image, "subset": "train" if row == 0 else "val"})
            for box in found:
                size = {"bbox": [float(x) for x in box], "area": round(float(box[2] * box[3]), 2)}
                flags = {"iscrowd": 0, "difficult": 0, "truncated": 1}
                numbers = {"id": len(boxes) + 1, "image_id": row + 1, "category_id": 12}
                boxes.append({**numbers, **size, **flags})
    return annotation_text(split, images, boxes)


@pytest.fixture
def devkit(tmp_path, monkeypatch):
    """Three images per year; of VOC2007 the last is not in the list of voc320."""
    lists, root = tmp_path / "lists", tmp_path / "VOCdevkit"
    lists.mkdir()
    generator = np.random.default_rng(0)
    sums = {}
    for split, year in make.YEARS.items():
        folder = root / f"VOC{year}"
        for name in ("Annotations", "ImageSets/Main", "JPEGImages"):
            (folder / name).mkdir(parents=True)
        names = [f"{year}_{number}" for number in range(3)]
        for name, size in zip(names, SIZES, strict=True):
            pixels = generator.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"JPEGImages/{name}.jpg")
            # The first box passes the border by a pixel, as some of VOC do.
            text = xml((0, 1, size[0], size[1] + 1), (11, 6, 20, 25))
            (folder / f"Annotations/{name}.xml").write_text(text)
        for which, part in (("train", names[:1]), ("val", names[1:]), ("trainval", names)):
            (folder / f"ImageSets/Main/{which}.txt").write_text("\n".join(part) + "\n")
        count = 3 if split == "train" else 2
        (lists / f"{split}.txt").write_text("\n".join(names[:count]) + "\n")
        sums[split] = hashlib.sha256(expected_text(split, year, count).encode()).hexdigest()
    monkeypatch.setattr(make, "LISTS", lists)
    monkeypatch.setattr(make, "ANNOTATIONS", sums)
    return root


def archive(devkit, year, path):
    """The year as the official archives have it."""
    with tarfile.open(path, "w") as tar:
        tar.add(devkit / f"VOC{year}", f"VOCdevkit/VOC{year}")
    return path


def content(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_devkit_gives_the_expected_annotations(devkit, tmp_path, capsys):
    out = tmp_path / "voc320"
    assert main(Make((devkit,), out)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("train: 3 images with 6 boxes in 1 shards; 0 images of VOC2012")
    assert "1 images of VOC2007 trainval are left out" in lines[1]
    assert "the annotations are those of the records" in lines[1]
    for split, count in (("train", 3), ("test", 2)):
        text = (out / f"annotations/{split}.json").read_text()
        assert text == expected_text(split, make.YEARS[split], count)
    dataset = load_dataset(out, "train")
    assert dataset.index.problems == ()
    assert tuple(dataset[0][0].shape) == (3, 211, 320)
    halves = split_data(out, tmp_path / "halves")  # what the study trains on
    assert [len(load_dataset(halves, split)) for split in ("train", "val", "test")] == [3, 1, 1]


def test_archives_and_folders_give_the_same_bytes(devkit, tmp_path):
    sources = tuple(archive(devkit, year, tmp_path / f"{year}.tar") for year in make.YEARS.values())
    of_folder, of_years, of_archives = (tmp_path / name for name in "abc")
    main(Make((devkit.parent,), of_folder))
    main(Make((devkit / "VOC2007", devkit / "VOC2012"), of_years))
    main(Make(sources, of_archives))
    assert content(of_folder) == content(of_years) == content(of_archives)
    assert len(content(of_folder)) == 4


def test_shards_end_before_the_limit_and_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(make, "SHARD", 10_000)
    files = [(f"train/{number}.webp", bytes([number]) * 3000) for number in range(6)]
    assert write_shards(iter(files), tmp_path, "train") == 3
    assert list(images_of(tmp_path, "train")) == files
    monkeypatch.setattr(make, "SHARD", 10)  # a file above the limit is alone
    assert write_shards(iter(files), tmp_path / "single", "train") == 6


def test_what_is_wrong_with_the_source_is_said(devkit, tmp_path):
    def made():
        return main(Make((devkit,), tmp_path / "out"))

    annotation = devkit / "VOC2012/Annotations/2012_0.xml"
    good = annotation.read_text()
    annotation.write_text(xml((1, 1, 5, 5)))
    with pytest.raises(DataError, match="annotations of train differ from those of the records"):
        made()
    annotation.write_text(xml((1, 1, 5, 5), name="dragon"))
    with pytest.raises(DataError, match=r"2012_0\.xml: object 1 is a 'dragon'"):
        made()
    annotation.write_text(good.replace("<xmax>20</xmax>", ""))
    with pytest.raises(DataError, match=r"2012_0\.xml: object 2 lacks xmax"):
        made()
    annotation.write_text("<annotation><object>")
    with pytest.raises(DataError, match=r"2012_0\.xml: no element found"):
        made()
    annotation.write_text(good)
    image = devkit / "VOC2012/JPEGImages/2012_1.jpg"
    image.write_bytes(image.read_bytes()[:200])
    with pytest.raises(DataError, match=r"2012_1\.jpg: the image cannot be decoded"):
        made()
    image.unlink()
    with pytest.raises(DataError, match=r"1 of 3 images are missing, such as .*2012_1\.jpg"):
        made()
    with pytest.raises(DataError, match=r"nowhere: there is no such file"):
        find_year([tmp_path / "nowhere"], "2007")
    with pytest.raises(DataError, match=r"there is no VOC2008/ImageSets/Main/trainval\.txt"):
        find_year([devkit], "2008")
    (devkit / "VOC2007/ImageSets/Main/val.txt").write_text("")
    with pytest.raises(DataError, match=r"neither train\.txt nor val\.txt lists 2007_1"):
        make.make_split(find_year([devkit], "2007"), "test", tmp_path / "out")

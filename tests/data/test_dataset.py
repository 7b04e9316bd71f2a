import json
import multiprocessing
import pickle
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from alphaiou.data.dataset import DetectionDataset, collate
from alphaiou.data.formats.coco import read_coco
from alphaiou.data.formats.files import FolderImages, TarImages
from alphaiou.data.problems import DataError

SIZES = [(12, 8), (9, 11), (10, 10)]


@pytest.fixture
def folder(tmp_path):
    """Three images, two of them with boxes, in a folder and in a tar."""
    rng = np.random.default_rng(0)
    images, annotations = [], []
    for number, (width, height) in enumerate(SIZES, start=1):
        name = f"{number}.png"
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / name)
        images.append({"id": 10 * number, "file_name": name, "width": width, "height": height})
        for box in range(number - 1):
            annotations.append(
                {"id": len(annotations) + 1, "image_id": 10 * number, "category_id": 4 + box,
                 "bbox": [1, box, 3.25, 5], "iscrowd": box, "difficult": number == 2, "area": 6.5}
            )  # fmt: skip
    categories = [{"id": 4, "name": "cat"}, {"id": 5, "name": "dog"}]
    document = {"images": images, "annotations": annotations, "categories": categories}
    (tmp_path / "x.json").write_text(json.dumps(document))
    with tarfile.open(tmp_path / "train-0.tar", "w") as tar:
        for image in images:
            tar.add(tmp_path / image["file_name"], f"train/{image['file_name']}")
    return tmp_path


def dataset_of(folder, kind):
    images = FolderImages(folder) if kind == "folder" else TarImages((folder / "train-0.tar",))
    return DetectionDataset(read_coco(folder / "x.json", "train", images))


@pytest.fixture(params=["folder", "tar"])
def dataset(folder, request):
    return dataset_of(folder, request.param)


def test_images_and_targets(dataset, folder):
    assert len(dataset) == 3
    for position, (width, height) in enumerate(SIZES):
        image, target = dataset[position]
        pixels = np.asarray(Image.open(folder / f"{position + 1}.png"))
        assert image.dtype == torch.uint8
        assert image.shape == (3, height, width)
        np.testing.assert_array_equal(image.permute(1, 2, 0).numpy(), pixels)
        assert target["image_id"] == 10 * (position + 1)
        assert target["boxes"].tolist() == [[1, b, 4.25, b + 5] for b in range(position)]
        assert target["labels"].tolist() == list(range(position))
        assert target["iscrowd"].tolist() == [bool(b) for b in range(position)]
        assert target["difficult"].tolist() == [position == 1] * position
        assert target["area"].tolist() == [6.5] * position
        types = {key: value.dtype for key, value in target.items() if key != "image_id"}
        assert types == {
            "boxes": torch.float32,
            "labels": torch.int64,
            "iscrowd": torch.bool,
            "difficult": torch.bool,
            "area": torch.float32,
        }
        assert target["boxes"].shape == (position, 4)


def test_positions(dataset):
    assert dataset[-1][1]["image_id"] == 30
    with pytest.raises(IndexError):
        dataset[3]
    assert [target["image_id"] for _, target in dataset] == [10, 20, 30]


def test_a_changed_index_is_another_dataset(dataset):
    without_crowds = DetectionDataset(dataset.index.drop_boxes(dataset.index.crowd))
    assert len(without_crowds) == 3
    assert len(without_crowds[2][1]["boxes"]) == 1


def test_targets_do_not_share_memory_with_the_index(dataset):
    dataset[2][1]["boxes"].zero_()
    dataset[2][1]["iscrowd"].fill_(value=True)
    assert dataset[2][1]["boxes"].any()
    assert not dataset[2][1]["iscrowd"].all()


def test_says_what_it_is(dataset):
    assert dataset.layout == "coco"
    for text in (str(dataset), repr(dataset)):
        assert "coco layout, split train): 3 images, 3 boxes, 2 classes" in text


def test_pickled_it_is_the_same(dataset):
    dataset[0]  # opens the tar
    again = pickle.loads(pickle.dumps(dataset))
    assert torch.equal(again[1][0], dataset[1][0])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_the_same(folder, method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    dataset = dataset_of(folder, "tar")
    expected = [dataset[i] for i in range(3)]
    loader = DataLoader(
        dataset, batch_size=2, num_workers=1, collate_fn=collate, multiprocessing_context=method
    )
    batches = list(loader)
    assert [len(images) for images, _ in batches] == [2, 1]
    found = [pair for batch in batches for pair in zip(*batch, strict=True)]
    for (image, target), (expected_image, expected_target) in zip(found, expected, strict=True):
        assert torch.equal(image, expected_image)
        assert target["image_id"] == expected_target["image_id"]
        assert torch.equal(target["boxes"], expected_target["boxes"])


@pytest.mark.parametrize("content", [b"", b"no image", None, "half"])
def test_an_image_that_cannot_be_read_is_an_error_that_names_it(folder, content):
    dataset = dataset_of(folder, "folder")
    path = folder / "2.png"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:60] if content == "half" else content)
    with pytest.raises(DataError, match=r"2\.png"):
        dataset[1]
    assert len(dataset[2]) == 2

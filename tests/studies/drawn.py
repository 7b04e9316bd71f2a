"""A drawn data set in the layout of voc320."""

import io
import json
import tarfile

from PIL import Image

from alphaiou.data.shapes.dataset import shapes_dataset


def drawn_voc320(folder, train=64, test=32, size=64):
    """COCO files with the field ``subset``, and one shard of WebP images per split."""
    (folder / "annotations").mkdir(parents=True)
    for split, length in (("train", train), ("test", test)):
        dataset = shapes_dataset(split, size=size, length=length, level="discs")
        images, boxes = [], []
        with tarfile.open(folder / f"{split}-0.tar", "w") as shard:
            for row in range(length):
                pixels, target = dataset[row]
                name = f"{split}{row:03}.webp"
                add_image(shard, f"{split}/{name}", pixels.permute(1, 2, 0).contiguous().numpy())
                height, width = pixels.shape[1:]
                image = {"id": row + 1, "file_name": name, "width": width, "height": height}
                images.append({**image, "subset": ("train", "val")[row % 2]})
                boxes += [coco_box(row + 1, *corners) for corners in target["boxes"].tolist()]
        for number, box in enumerate(boxes):
            box["id"] = number + 1
        content = {"images": images, "annotations": boxes}
        content["categories"] = [{"id": 1, "name": "disc"}]
        (folder / f"annotations/{split}.json").write_text(json.dumps(content))
    return folder


def add_image(shard, name, pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "WEBP", quality=65)
    info = tarfile.TarInfo(name)
    info.size = buffer.tell()
    buffer.seek(0)
    shard.addfile(info, buffer)


def coco_box(image, x1, y1, x2, y2):
    size = {"bbox": [x1, y1, x2 - x1, y2 - y1], "area": (x2 - x1) * (y2 - y1)}
    return {"image_id": image, "category_id": 1, "iscrowd": 0, "difficult": 0, **size}

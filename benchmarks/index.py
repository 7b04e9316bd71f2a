"""Time and memory to open a COCO file of realistic size.

    python -m benchmarks.index            # writes benchmarks/index-cpu.json

The file is synthetic, with as many images, annotations and bytes as COCO's
instances_train2017.json, with polygons, and an empty file per image. "Cold" is without an index
cache; the file itself has just been written and is read from the page cache. Each measurement runs
`load_dataset` in a new process. The memory is the peak of that process including shared libraries
(VmHWM of Linux, since ru_maxrss starts with the value of the parent process).
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np

from benchmarks.record import FOLDER, write_record

IMAGES, ANNOTATIONS, CATEGORIES = 118_287, 860_001, 80
POLYGON_POINTS = (4, 45)

MEASURE = """
import json, re, sys, time

def peak_memory_mb():
    with open("/proc/self/status") as status:
        return round(int(re.search(r"VmHWM:\\s+(\\d+) kB", status.read())[1]) / 1024, 1)

if "torch" in sys.argv:
    import torch
start = time.perf_counter()
from alphaiou.data.dataset import load_dataset
imported, memory_imported_mb = time.perf_counter(), peak_memory_mb()
dataset = load_dataset(sys.argv[1], "train")
done = time.perf_counter()
print(json.dumps({
    "images": len(dataset), "boxes": dataset.index.num_boxes,
    "problems": len(dataset.index.problems), "import_s": round(imported - start, 3),
    "open_s": round(done - imported, 3), "torch_loaded": "torch" in sys.modules,
    "cpu_s": round(time.process_time(), 3), "imported_memory_mb": memory_imported_mb,
    "peak_memory_mb": peak_memory_mb(),
}))
"""


def write_annotations(path, images, annotations):
    """Write a COCO file with the fields and about the size of the real one."""
    rng = np.random.default_rng(0)
    polygons = [
        ",".join(f"{value:.2f}" for value in rng.uniform(0, 640, 2 * points))
        for points in rng.integers(*POLYGON_POINTS, 500)
    ]
    ids = rng.choice(600_000, images, replace=False).tolist()
    corners, sides = rng.uniform(0, 380, (annotations, 2)), rng.uniform(2, 100, (annotations, 2))
    boxes = np.concatenate([corners, sides], axis=1).round(2).tolist()
    owners = rng.choice(ids, annotations).tolist()
    with path.open("w") as file:
        file.write('{"info":{"description":"made up"},"licenses":[],"images":[')
        for place, number in enumerate(ids):
            file.write("," * bool(place))
            file.write(
                f'{{"license": 3,"file_name": "{number:012d}.jpg","coco_url": '
                f'"http://images.example.org/train2017/{number:012d}.jpg","height": 480,'
                '"width": 640,"date_captured": "2013-11-14 11:18:45","flickr_url": '
                f'"http://farm.example.org/8186/{number:010d}_4e622c8349_z.jpg","id": {number}}}'
            )
        file.write('],"annotations":[')
        for place, (box, owner) in enumerate(zip(boxes, owners, strict=True)):
            file.write("," * bool(place))
            file.write(
                f'{{"segmentation": [[{polygons[place % 500]}]],"area": {box[2] * box[3] * 0.7},'
                f'"iscrowd": 0,"image_id": {owner},"bbox": {box},'
                f'"category_id": {1 + place % CATEGORIES},"id": {place + 1}}}'
            )
        names = [{"id": 1 + number, "name": f"class {number}"} for number in range(CATEGORIES)]
        file.write(f'],"categories":{json.dumps(names)}}}')
    return ids


def make_data_set(root, images, annotations):
    (root / "annotations").mkdir()
    (root / "train2017").mkdir()
    path = root / "annotations/instances_train2017.json"
    for number in write_annotations(path, images, annotations):
        (root / f"train2017/{number:012d}.jpg").touch()
    return path


def measure(root, cache, *options):
    environment = {**os.environ, "ALPHAIOU_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(root), *options],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--annotations", type=int, default=ANNOTATIONS)
    parser.add_argument("--out", type=Path, default=FOLDER / "index-cpu.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root, cache = Path(folder) / "set", Path(folder) / "cache"
        root.mkdir()
        path = make_data_set(root, arguments.images, arguments.annotations)
        os.sync()  # else the measurements wait for the disk to take what was just made
        record = {
            "record": "opening a COCO file",
            "load_average": round(os.getloadavg()[0], 1),
            "file_bytes": path.stat().st_size,
            "cold": measure(root, cache),
            "cached": measure(root, cache),
            "cache_bytes": sum(file.stat().st_size for file in cache.iterdir()),
            "cold_in_a_process_with_torch": measure(root, "", "torch"),
        }
    record["machine"] = {
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.system(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("alphaiou", "numpy", "msgspec", "torch")},
    }
    print(write_record(record, arguments.out).read_text())


if __name__ == "__main__":
    main()

"""Train models of the frameworks with their own box loss and with ours, and write the record.

    python .ci/frameworks.py [FOLDER] [--only yolov5 libreyolo]

What does not fit into the environment of the tests has one of its own in FOLDER, in which the
tests of its integration run too. Each row: the versions, the largest relative difference of a loss
over five steps at α = 1, the same of two trainings with the framework's own loss whose first
weights differ by rounding, whether the handle saw the call, and the time of a step at α = 3.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

TREE = Path(__file__).parents[1]
RECORD = TREE / "benchmarks" / "frameworks-cpu.json"
OLD_TORCH = ("torch==2.5.1", "torchvision==0.20.1", "numpy<2", "setuptools<70")
#: The own kind of each, and the packages of its own environment, if it has one.
FRAMEWORKS = {
    "torchvision": ("giou", ()),
    "transformers": ("giou", ()),
    "ultralytics": ("ciou", ()),
    "yolov5": ("ciou", ("yolov5==7.0.14", *OLD_TORCH)),
    "libreyolo": ("ciou", ("libreyolo==1.6.0", "setuptools")),
}
ROUNDS = 15
#: Relative changes of the weights, about the rounding of float32.
ROUNDING = 1e-7


def torchvision_model():
    from tests.integrations.torchvision_models import batch, build

    images, targets = batch(3, 2)
    model = build("FCOS")
    return "FCOS", model, lambda: sum(model(images, targets).values())


def transformers_model():
    from tests.integrations.detr_family import batch, build

    inputs, model = batch(3, 2), build("Detr")
    return "DETR", model, lambda: model(**inputs).loss


def ultralytics_model():
    import torch
    from ultralytics import YOLO
    from ultralytics.cfg import get_cfg

    model = YOLO("yolov8n.yaml").model.train()
    model.args = get_cfg()
    batch = {"img": torch.rand(2, 3, 96, 96), "cls": torch.tensor([[0.0], [1.0]])}
    batch["bboxes"] = torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.6, 0.5, 0.5, 0.3]])
    batch["batch_idx"] = torch.tensor([0.0, 1.0])
    return "YOLOv8n", model, lambda: model(dict(batch))[0].sum()


def yolov5_model():
    import torch
    import yolov5
    from yolov5.models.yolo import Model
    from yolov5.utils.loss import ComputeLoss

    from tests.integrations.alone_yolov5 import HYPERPARAMETERS, TARGETS

    model = Model(f"{Path(yolov5.__file__).parent}/models/yolov5n.yaml", ch=3, nc=5).train()
    model.hyp = HYPERPARAMETERS
    images = torch.rand(2, 3, 96, 96)
    return "YOLOv5n", model, lambda: ComputeLoss(model)(model(images), TARGETS)[0].sum()


def libreyolo_model():
    import torch
    from libreyolo.models.yolo9.nn import LibreYOLO9Model

    from tests.integrations.alone_libreyolo import TARGETS

    model = LibreYOLO9Model(config="t", nb_classes=5).train()
    images = torch.rand(2, 3, 96, 96)
    return "YOLOv9-t", model, lambda: model(images, targets=TARGETS)["total_loss"]


def difference(own, ours):
    """The largest relative one."""
    return max(abs(a - b) / abs(a) for a, b in zip(own, ours, strict=True))


def install(framework: str, model, text: str):
    """The handle, whichever way a framework takes it; YOLOv5 keeps its objectness for α = 1."""
    use_box_loss = import_module(f"alphaiou.integrations.{framework}").use_box_loss
    if framework in ("torchvision", "transformers"):
        return use_box_loss(model, text)
    objectness = {"objectness_from_loss": True} if framework == "yolov5" else {}
    return use_box_loss(text, **objectness)


def measure(framework: str) -> dict[str, object]:
    """One row, in the process of the framework's environment."""
    import torch

    torch.set_num_threads(1)
    kind, _ = FRAMEWORKS[framework]

    def fresh():
        torch.manual_seed(0)
        return globals()[f"{framework}_model"]()

    def train(text, steps, rounding=0.0):
        name, model, loss = fresh()
        if rounding:
            with torch.no_grad():
                for weight in model.parameters():
                    weight.mul_(1 + rounding * torch.randn(weight.shape))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        with nullcontext() if text is None else install(framework, model, text) as handle:
            losses, times = [], []
            for step in range(steps):
                torch.manual_seed(step)
                start = time.process_time()
                value = loss()
                optimizer.zero_grad()
                value.backward()
                optimizer.step()
                times.append(time.process_time() - start)
                losses.append(value.item())
            return name, losses, times, handle is not None and handle.called

    name, own, _, _ = train(None, 5)
    _, ours, _, called = train(kind, 5)
    _, rounded, _, _ = train(None, 5, ROUNDING)
    times = {text: [] for text in (None, f"{kind}:3")}
    for _ in range(3):
        for text in times:
            times[text] += train(text, ROUNDS)[2][2:]
    before, after = map(statistics.median, times.values())
    packages = ("torch", framework) if framework != "torch" else ("torch",)
    return {
        "framework": framework,
        "versions": {package: version(package).split("+")[0] for package in packages},
        "python": platform.python_version(),
        "model": name,
        "own_kind": kind,
        "first_relative_difference": difference(own[:1], ours[:1]),
        "largest_relative_difference": difference(own, ours),
        "rounding_relative_difference": difference(own, rounded),
        "called": called,
        "ratio_alpha_3": after / before,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),  # noqa: UP017
    }


def environment(framework: str, folder: Path) -> Path:
    """Its Python: that of this tree, or of an environment of its own."""
    _, packages = FRAMEWORKS[framework]
    if not packages:
        return Path(sys.executable)
    python = folder / framework / "bin" / "python"
    if not python.exists():
        venv = ["uv", "venv", "--quiet", "--python", "3.11", str(folder / framework)]
        subprocess.run(venv, cwd=folder, check=True)
    pip = ["uv", "pip", "install", "--quiet", "--python", str(python)]
    subprocess.run([*pip, *packages, "pytest", "hypothesis", "scipy"], cwd=folder, check=True)
    subprocess.run([*pip, "--no-deps", "--editable", str(TREE)], cwd=folder, check=True)
    return python


def tests_passed(python: Path, framework: str) -> int:
    """How many tests of the integration pass there; an exception if one fails."""
    command = [str(python), "-m", "pytest", "-q", "-o", "addopts=", "-o", "filterwarnings=default"]
    command += ["-p", "no:cacheprovider", f"tests/integrations/alone_{framework}.py"]
    done = subprocess.run(command, cwd=TREE, capture_output=True, text=True, check=True)
    return int(re.findall(r"(\d+) passed", done.stdout)[-1])


def main() -> None:
    """Measure every framework in its environment; keep the rows of those not measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--only", nargs="+", choices=FRAMEWORKS, default=list(FRAMEWORKS))
    parser.add_argument("--measure", choices=FRAMEWORKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        sys.path.insert(0, str(TREE))
        print(json.dumps(measure(options.measure)))
        return
    quiet = {"YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false"}
    os.environ |= quiet | {"YOLO_CONFIG_DIR": tempfile.mkdtemp()}
    rows = {}
    if RECORD.exists():
        rows = {row["framework"]: row for row in json.loads(RECORD.read_text())["rows"]}
    for framework in options.only:
        python = environment(framework, options.folder.resolve())
        command = [str(python), __file__, "--measure", framework]
        done = subprocess.run(command, cwd=TREE, stdout=subprocess.PIPE, text=True, check=True)
        rows[framework] = json.loads(done.stdout.splitlines()[-1])
        if FRAMEWORKS[framework][1]:
            rows[framework]["tests_passed"] = tests_passed(python, framework)
        print(rows[framework], flush=True)
        write([rows[name] for name in FRAMEWORKS if name in rows])


def write(rows: list[dict[str, object]]) -> None:
    """Write the record, one line per row."""
    head = {"record": "frameworks", "device": f"{platform.machine()} CPU, 1 thread"}
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    text = json.dumps(head, indent=1).removesuffix("\n}")
    RECORD.write_text(f'{text},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()

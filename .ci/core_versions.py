"""Run the tests of the core on old and new versions of torch and Python, and write the record.

Every pair has an environment of its own, which is deleted afterwards:

    python .ci/core_versions.py [FOLDER] [--only 2.1 2.8] [--keep]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

TREE = Path(__file__).parents[1]
RECORD = TREE / "benchmarks" / "versions-cpu.json"
#: Python, torch ("" is the newest) and the torchvision that belongs to it.
PAIRS = (
    ("3.10", "2.1.2", "0.16.2"),
    ("3.11", "2.4.1", "0.19.1"),
    ("3.12", "2.6.0", "0.21.0"),
    ("3.13", "2.8.0", "0.23.0"),
    ("3.11", "", ""),
    ("3.13", "", ""),
)
TESTS = ("tests/test_boxes.py", "tests/losses", "tests/test_versions.py")
TOOLS = ("pytest", "hypothesis", "setuptools", "scipy")
OPTIONS = ("-o", "addopts=", "-o", "filterwarnings=default", "-p", "no:cacheprovider")
OPTIONS += ("-q", "-rs", "--tb=line", "-m", "not slow")
OUTCOMES = ("passed", "skipped", "failed", "error")


def check(python: str, torch: str, torchvision: str, folder: Path) -> dict[str, object]:
    """One row: the versions, the outcomes, why tests were skipped, and the failures if any."""
    place = folder / f"python{python}-torch{torch or '-newest'}"
    uv = ["uv", "pip", "install", "--quiet", "--python", f"{place}/bin/python"]
    wanted = (
        [f"torch=={torch}", f"torchvision=={torchvision}"] if torch else ["torch", "torchvision"]
    )
    # Wheels of old torch were built against the first numpy.
    wanted += ["numpy<2"] if torch.startswith("2.1") else ["numpy"]
    start = time.time()
    try:
        _run(
            [
                "uv",
                "venv",
                "--quiet",
                "--allow-existing",
                "--python",
                _interpreter(python),
                str(place),
            ],
            folder,
        )
        # From outside the tree, where uv does not read the pins of pyproject.toml.
        _run([*uv, *wanted, *TOOLS], folder)
        _run([*uv, "--no-deps", "--editable", str(TREE)], folder)
    except subprocess.CalledProcessError as error:
        return {"python": python, "torch": torch, "missing": error.stderr.strip()[-300:]}
    code = (
        "import platform, torch, torchvision; print(platform.python_version(), torch.__version__,"
        " torchvision.__version__)"
    )
    versions = _run([f"{place}/bin/python", "-c", code], folder).stdout.split()
    done = subprocess.run(
        [f"{place}/bin/python", "-m", "pytest", *OPTIONS, *TESTS],
        cwd=TREE,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    found = {
        name: number for number, name in re.findall(r"(\d+) (\w+)", lines[-1] if lines else "")
    }
    return {
        "python": versions[0],
        "torch": versions[1].split("+")[0],
        "torchvision": versions[2].split("+")[0],
        **{name: int(found.get(name, 0)) for name in OUTCOMES},
        "skipped_because": sorted({_reason(line) for line in lines if line.startswith("SKIPPED")}),
        "failures": [line for line in lines if line.startswith("FAILED")][:20],
        "seconds": round(time.time() - start),
    }


def _interpreter(python: str) -> str:
    """An installed interpreter, those of pyenv included; else its version, which uv may know."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    installed = sorted(root.glob(f"versions/{python}.*/bin/python"))
    return str(installed[-1]) if installed else python


def _reason(line: str) -> str:
    return re.sub(r"^SKIPPED \[\d+\] \S+: ", "", line)


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)


def main() -> int:
    """Check the pairs, one after the other; the record is written after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument(
        "--only", nargs="+", help="torch versions, such as 2.1; newest for the last"
    )
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    options = parser.parse_args()
    folder = options.folder.resolve() / "core-versions"
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for python, torch, torchvision in PAIRS:
        if options.only and not any((torch or "newest").startswith(t) for t in options.only):
            continue
        rows.append(check(python, torch, torchvision, folder))
        print(json.dumps(rows[-1]), flush=True)
        if not options.keep:
            shutil.rmtree(folder / f"python{python}-torch{torch or '-newest'}", ignore_errors=True)
        write(rows)
    return int(any(row.get("failed") or row.get("error") or "missing" in row for row in rows))


def write(rows: list[dict[str, object]]) -> None:
    """Write the record, one line per row."""
    head = {
        "record": "versions",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": f"{platform.machine()} CPU",
        "tests": list(TESTS),
    }
    text = json.dumps(head, indent=1).removesuffix("\n}")
    lines = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
    RECORD.write_text(f'{text},\n "rows": [\n{lines}\n ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())

"""Pin what uv installs: the constraints in pyproject.toml are the versions of uv.lock.

Usage: python .ci/pins.py             pin the present versions, after a change of dependencies
       python .ci/pins.py --upgrade   pin the newest versions
       python .ci/pins.py --check     fail if a version is not pinned

uv.lock itself is not committed, since it holds the addresses of the registry that wrote it.
Only uv reads the constraints, and only in this tree.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
START, END = "constraint-dependencies = [", "]"
EXPORT = (
    "uv export --quiet --all-groups --all-extras --no-hashes --no-annotate --no-header "
    "--no-emit-project --no-emit-index-url --no-emit-find-links"
)


def pins_of(export: str) -> list[str]:
    """The pins of an export; a marker only where a package has several versions."""
    lines = [line.strip() for line in export.splitlines() if line.strip()]
    for line in lines:
        if not re.match(r"[\w.-]+==[\w.]+( ;|$)", line):
            raise SystemExit(f"{line}: not a version of a registry, which a pin needs")
    names = Counter(line.split("==")[0] for line in lines)
    return [line if names[line.split("==")[0]] > 1 else line.split(" ;")[0] for line in lines]


def with_pins(pyproject: str, pins: list[str]) -> str:
    """The text of pyproject.toml with other pins."""
    lines = pyproject.splitlines(keepends=True)
    try:
        first = lines.index(f"{START}\n") + 1
        last = lines.index(f"{END}\n", first)
    except ValueError:
        raise SystemExit(
            f"pyproject.toml: the pins must be between a line {START!r} and a line {END!r}"
        ) from None
    lines[first:last] = [f'    "{pin}",\n' for pin in pins]
    return "".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Write or check the pins."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="pin the newest versions")
    parser.add_argument("--check", action="store_true", help="fail if a version is not pinned")
    options = parser.parse_args(arguments)
    text = PYPROJECT.read_text(encoding="utf-8")
    if options.upgrade:
        PYPROJECT.write_text(with_pins(text, []), encoding="utf-8")
        _run("uv lock --quiet --upgrade")
    pinned = with_pins(text, pins_of(_run(EXPORT)))
    if options.check and pinned != text:
        sys.exit("pyproject.toml does not pin what uv installs: python .ci/pins.py")
    if not options.check:
        PYPROJECT.write_text(pinned, encoding="utf-8")
        _run("uv lock --quiet")  # which also tells whether the pins can be resolved


def _run(command: str) -> str:
    done = subprocess.run(
        command.split(), cwd=PYPROJECT.parent, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


if __name__ == "__main__":
    main()

"""List the licences of all installed packages, and reject those that the package cannot use.

Fails where a licence is unknown, or is of the GPL family (other than the LGPL) and the package is
not an exception. Run it where all groups are installed.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
#: AGPL: only for the tests of the integration, and never needed by anything else.
TEST_ONLY = ("ultralytics", "ultralytics-platform", "ultralytics-thop")
#: Packages whose metadata do not name the licence of their files.
KNOWN = {"cuda-toolkit": "LicenseRef-NVIDIA-Proprietary"}
GPL = re.compile(r"\bA?GPL|(?<!Lesser )(?<!Library )General Public License", re.IGNORECASE)


def licence_of(package: Distribution) -> str:
    """What the metadata of a package say; empty if that is nothing."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [
        line.rsplit(" :: ", 1)[1]
        for line in metadata.get_all("Classifier") or []
        if line.startswith("License :: ") and line != "License :: OSI Approved"
    ]
    # Some packages have the whole text in this field.
    title = next(iter((metadata.get("License") or "").strip().splitlines()), "")
    title = "" if title == "UNKNOWN" or set(title) == {"="} else title
    return " AND ".join(dict.fromkeys([*classifiers, *filter(None, [title])]))


def is_gpl(licence: str) -> bool:
    """Whether a licence leaves no choice but one of the GPL family."""
    return all(GPL.search(choice) for choice in re.split(r"\s+OR\s+", licence))


def needed_by(roots: Iterable[str], packages: Mapping[str, Distribution]) -> set[str]:
    """The installed packages that some requirements need, with all they need themselves."""
    seen: set[tuple[str, str]] = set()
    todo = list(roots)
    while todo:
        requirement = Requirement(todo.pop())
        name = canonicalize_name(requirement.name)
        for extra in ("", *requirement.extras):
            if name in packages and (name, extra) not in seen:
                seen.add((name, extra))
                todo += _requirements(packages[name], extra)
    return {name for name, _ in seen}


def _requirements(package: Distribution, extra: str) -> Iterator[str]:
    for line in package.requires or []:
        marker = Requirement(line).marker
        if marker is None or marker.evaluate({"extra": extra}):
            yield line


def roots_of(pyproject: Mapping[str, Any]) -> list[str]:
    """What the package, its extras and all groups but ``test`` require."""
    project = pyproject["project"]
    groups = {**pyproject["dependency-groups"], **project["optional-dependencies"]}
    del groups["test"]
    return [*project["dependencies"], *(line for lines in groups.values() for line in lines)]


def problems_of(packages: Mapping[str, Distribution], needed: set[str]) -> Iterator[str]:
    """What is wrong with the licences of some packages."""
    for name, package in sorted(packages.items()):
        licence = KNOWN.get(name) or licence_of(package)
        if not licence:
            yield f"{name}: its metadata name no licence; find it and add it to KNOWN"
        elif is_gpl(licence) and name not in TEST_ONLY:
            yield f"{name}: {licence} is not permitted; replace the package"
        elif is_gpl(licence) and name in needed:
            yield f"{name}: {licence} is permitted in the group test alone; something else needs it"


def main() -> None:
    """Print the licences, and fail if one is not permitted."""
    packages = {canonicalize_name(one.metadata["Name"]): one for one in distributions()}
    for name, package in sorted(packages.items()):
        print(f"{name} {package.version}: {KNOWN.get(name) or licence_of(package)}")  # noqa: T201
    pyproject = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))
    problems = list(problems_of(packages, needed_by(roots_of(pyproject), packages)))
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()

"""The versions that uv installs are pinned."""

import runpy
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PINS = runpy.run_path(str(ROOT / ".ci/pins.py"))
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_every_requirement_has_a_pin_that_it_permits():
    content = tomllib.loads(PYPROJECT)
    pins = {}
    for line in content["tool"]["uv"]["constraint-dependencies"]:
        pin = Requirement(line)
        ((operator, version),) = ((one.operator, one.version) for one in pin.specifier)
        assert operator == "=="
        assert pin.url is None
        pins.setdefault(canonicalize_name(pin.name), []).append(version)
    project = content["project"]
    groups = {**project["optional-dependencies"], **content["dependency-groups"]}
    lines = [*project["dependencies"], *(line for group in groups.values() for line in group)]
    for requirement in map(Requirement, lines):
        if requirement.name != "alphaiou":
            versions = pins[canonicalize_name(requirement.name)]
            assert versions
            assert all(requirement.specifier.contains(version) for version in versions)


def test_a_marker_stays_where_a_package_has_several_versions():
    export = "a==1.0 ; sys_platform == 'linux'\nb==1 ; python_full_version < '3.12'\nb==2\n"
    assert PINS["pins_of"](export) == ["a==1.0", "b==1 ; python_full_version < '3.12'", "b==2"]


@pytest.mark.parametrize("line", ["-e .", "a @ file:///a.whl", "--index-url address"])
def test_what_no_registry_has_cannot_be_pinned(line):
    with pytest.raises(SystemExit, match="not a version of a registry"):
        PINS["pins_of"](f"b==1\n{line}\n")


def test_only_the_pins_change():
    content, changed = tomllib.loads(PYPROJECT), PINS["with_pins"](PYPROJECT, ["a==1.0"])
    assert PINS["with_pins"](changed, content["tool"]["uv"]["constraint-dependencies"]) == PYPROJECT
    content["tool"]["uv"]["constraint-dependencies"] = ["a==1.0"]
    assert tomllib.loads(changed) == content
    with pytest.raises(SystemExit, match="the pins must be between"):
        PINS["with_pins"]("[tool.uv]\n", [])

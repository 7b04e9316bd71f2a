"""The public names are those of `public_names.txt`: a change to them is a change of that file."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest

import alphaiou

LIST = Path(__file__).with_name("public_names.txt")
LISTED = LIST.read_text(encoding="utf-8").split()


def public_names():
    """Those of the package, and those of its public modules that say which theirs are."""
    names = list(alphaiou.__all__)
    for module in filter(inspect.ismodule, map(resolve, alphaiou.__all__)):
        prefix = module.__name__.removeprefix("alphaiou.")
        names += [f"{prefix}.{name}" for name in getattr(module, "__all__", ())]
    return names


def resolve(name):
    value = alphaiou
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_names_are_the_listed_ones():
    assert sorted(public_names()) == LISTED, f"if this is meant, update {LIST.name} and CHANGELOG"
    assert sorted(LISTED) == LISTED
    assert len(set(LISTED)) == len(LISTED)


def test_dir_shows_them():
    assert dir(alphaiou) == sorted(alphaiou.__all__)


@pytest.mark.parametrize("name", LISTED)
def test_name_resolves_and_is_documented(name):
    value = resolve(name)
    if inspect.ismodule(value) or inspect.isclass(value) or callable(value):
        assert (value.__doc__ or "").strip(), f"{name} has no docstring"
    elif isinstance(value, dict):  # a table: its rows are documented
        assert value
        assert all(inspect.getdoc(row) for row in value.values())
    else:
        assert name == "__version__"
        assert value.count(".") >= 2


@pytest.mark.parametrize("name", [name for name in LISTED if "." not in name])
def test_package_and_module_mean_the_same(name):
    value = resolve(name)
    home = getattr(value, "__module__", None)
    if home is not None:
        assert getattr(import_module(home), name) is value


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match=r"alphaiou.*no_such_loss"):
        _ = alphaiou.no_such_loss
    with pytest.raises(ImportError, match="no_such_loss"):
        from alphaiou import no_such_loss  # noqa: F401

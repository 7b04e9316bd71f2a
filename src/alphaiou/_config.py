"""Configurations: frozen structs, their plain values, and their YAML files."""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from alphaiou._files import write_file
from alphaiou.errors import AlphaIoUError

Kind = TypeVar("Kind")
#: How to read the values of a type that have a short form as text.
Texts = Mapping[type, Callable[[str], Any]]


class ConfigError(AlphaIoUError, ValueError):
    """A configuration cannot be read; the message names the field and the remedy."""


class _OfDataclass:
    """An attribute that the struct would have if it were a dataclass."""

    def __set_name__(self, _: object, name: str) -> None:
        self.name = name

    def __get__(self, _: object, owner: type[Config]) -> Any:  # noqa: ANN401
        return getattr(_as_dataclass(owner), self.name)


@cache
def _as_dataclass(kind: type[Config]) -> type:
    """Return a dataclass with the fields of a struct."""
    same = []
    for item in msgspec.structs.fields(kind):
        choices = {"default": item.default, "default_factory": item.default_factory}
        given = {key: value for key, value in choices.items() if value is not msgspec.NODEFAULT}
        same.append((item.name, item.type, dataclasses.field(**given)))
    return dataclasses.make_dataclass(kind.__name__, same, kw_only=True, frozen=True)


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base class of configurations.

    msgspec converts and checks them. ``replace``, ``fields`` and ``asdict`` of ``dataclasses`` work
    on them as well, as on the dataclasses that they hold.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]] = _OfDataclass()  # type: ignore[assignment]
    __dataclass_params__: ClassVar[Any] = _OfDataclass()


# --- plain values ---------------------------------------------------------------------------------


def to_plain(config: Config) -> dict[str, Any]:
    """Return a configuration as plain values (str, int, dict, ...)."""
    plain: dict[str, Any] = msgspec.to_builtins(config)
    return plain


def from_plain(
    values: Mapping[str, Any], kind: type[Kind], *, where: str = "", texts: Texts | None = None
) -> Kind:
    """Convert plain values to a configuration; fields that are not given have their defaults.

    Args:
        values: The values by field.
        kind: The type of the configuration.
        where: The file or record of the values, for messages.
        texts: How to read the values of a type that have a short form as text.

    Raises:
        ConfigError: If a key is unknown or a value does not fit; the message names the field.
    """
    try:
        checked = _checked(kind, values, "", texts or {})
        return msgspec.convert(checked, kind, strict=False)
    except msgspec.ValidationError as error:
        message = _message(str(error))
    except ValueError as error:
        message = str(error)
    raise ConfigError(f"{where}: {message}" if where else message) from None


def _message(text: str) -> str:
    """Put the field in front of a message of msgspec."""
    reason, _, path = text.partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    reason = reason.replace("`", "")
    if not field or reason.startswith(field):
        return reason
    return f"{field}: {reason[0].lower()}{reason[1:]}"


def _checked(kind: Any, value: Any, path: str, texts: Texts) -> Any:  # noqa: ANN401
    """Return a value with its texts read; reject unknown keys, and say which key is near.

    msgspec rejects unknown keys of structs without a suggestion, and ignores those of dataclasses.
    """
    chosen = _chosen(kind, value, path)
    if chosen is None:
        return value
    if isinstance(value, str) and chosen in texts:
        return texts[chosen](value)
    if not isinstance(value, Mapping):
        return value
    hints = _hints(chosen)
    tag = getattr(chosen, "__struct_config__", None)
    tag_field = None if tag is None else tag.tag_field
    result = {}
    for key, inner in value.items():
        field = f"{path}.{key}" if path else str(key)
        if key == tag_field:
            result[key] = inner
        elif key not in hints:
            raise ConfigError(f"{field} is not a field; {_near(str(key), hints)}")
        else:
            result[key] = _checked(hints[key], inner, field, texts)
            choices = get_args(hints[key]) if get_origin(hints[key]) is Literal else ()
            if choices and inner not in choices:
                raise ConfigError(f"{field} must be one of {', '.join(choices)}; got {inner!r}")
    return result


def _chosen(kind: Any, value: Any, path: str) -> Any:  # noqa: ANN401
    """Return the configuration or dataclass of a type that a value is for, or None."""
    if get_origin(kind) in (Union, types.UnionType):
        options: list[Any] = [one for one in get_args(kind) if dataclasses.is_dataclass(one)]
    else:
        options = [kind] if dataclasses.is_dataclass(kind) else []
    tagged = {
        option.__struct_config__.tag: option
        for option in options
        if getattr(getattr(option, "__struct_config__", None), "tag", None) is not None
    }
    if not tagged or not isinstance(value, Mapping):
        return options[0] if options else None
    tag_field = next(iter(tagged.values())).__struct_config__.tag_field
    name = value.get(tag_field)
    if name not in tagged:
        raise ConfigError(f"{path}.{tag_field} {name!r} is unknown; {_near(str(name), tagged)}")
    return tagged[name]


@cache
def _hints(kind: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the types of the fields of a configuration or dataclass."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _near(name: str, names: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(names)}"


def differing_fields(stored: object, wanted: object, path: str = "") -> list[str]:
    """Return the fields in which two plain configurations differ, with both values.

    Examples:
        >>> differing_fields({"loss": {"kind": "iou"}}, {"loss": {"kind": "giou"}})
        ["loss.kind is 'iou', not 'giou'"]
    """
    if isinstance(stored, Mapping) and isinstance(wanted, Mapping):
        return [
            text
            for key in dict.fromkeys((*stored, *wanted))
            for text in differing_fields(
                stored.get(key), wanted.get(key), f"{path}.{key}" if path else str(key)
            )
        ]
    return [] if stored == wanted else [f"{path} is {stored!r}, not {wanted!r}"]


# --- YAML -----------------------------------------------------------------------------------------


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the plain values of a configuration from a YAML file.

    Raises:
        ConfigError: If the file cannot be read.
    """
    import yaml

    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: is not valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must contain fields and their values, such as epochs: 30")
    return values


def write_yaml(config: Config, path: Path, comment: str) -> None:
    """Write a configuration to a YAML file, below a comment."""
    import yaml

    text = yaml.safe_dump(msgspec.to_builtins(config), sort_keys=False, allow_unicode=True)
    write_file(path, f"# {comment}\n{text}")

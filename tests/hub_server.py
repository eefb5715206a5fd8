"""A small server on the loopback that speaks enough of the Hub's API for huggingface_hub.

It knows repositories at a revision and their files with ETag, commit and size; gated, slow and broken ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


def commit_of(text: str) -> str:
    return hashlib.sha1(text.encode()).hexdigest()


@dataclass
class Repo:
    """``commits`` maps a full commit to its files, ``branches`` a name to a commit.

    ``gated`` lets in only requests with ``token``. ``status`` answers everything with that code. ``delay``
    sleeps before each answer. ``cut_after`` ends a file's bytes early, ``corrupt`` changes one of them.
    """

    commits: dict[str, dict[str, bytes]]
    branches: dict[str, str]
    gated: bool = False
    token: str = ""
    status: int = 0
    delay: float = 0.0
    cut_after: int = -1
    corrupt: bool = False

    def resolve(self, revision: str) -> str | None:
        return revision if revision in self.commits else self.branches.get(revision)


def repo(files: dict[str, bytes], commit: str = "", **more: object) -> Repo:
    commit = commit or commit_of(repr(sorted(files)))
    return Repo({commit: files}, {"main": commit}, **more)  # type: ignore[arg-type]


@dataclass
class Hub:
    url: str
    repos: dict[str, Repo]  # "owner/name" for models, "datasets/owner/name" for data sets
    requests: list[str] = field(default_factory=list)


@contextlib.contextmanager
def serve(repos: dict[str, Repo]) -> Iterator[Hub]:
    hub = Hub("", repos)

    class Handler(_Handler):
        the_hub = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    the_hub: Hub

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._serve(body=False)

    def do_GET(self) -> None:
        self._serve(body=True)

    def do_POST(self) -> None:
        self._serve(body=True)

    def _serve(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path).strip("/")
        self.the_hub.requests.append(f"{self.command} /{path}")
        if path.startswith("api/"):
            kind, _, rest = path.removeprefix("api/").partition("/")
            prefix = "datasets/" if kind == "datasets" else ""
            for view in ("tree", "paths-info"):
                name, found, place = rest.partition(f"/{view}/")
                if found:
                    self._tree(prefix + name, *place.partition("/")[::2], exact=view == "paths-info")
                    return
            name, _, revision = rest.partition("/revision/")
            self._info(prefix + name, name, revision or "main", body)
            return
        name, _, rest = path.partition("/resolve/")
        revision, _, file = rest.partition("/")
        self._file(name, revision, file, body)

    def _fail(self, status: int, code: str = "") -> None:
        data = json.dumps({"error": code or "no"}).encode()
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _admitted(self, name: str, for_file: bool) -> Repo | None:
        found = self.the_hub.repos.get(name)
        if found is None:
            self._fail(401, "RepoNotFound")
            return None
        time.sleep(found.delay)
        if found.status:
            self._fail(found.status)
            return None
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        # The real Hub shows a gated repository's description to everyone, and its files to those admitted.
        if found.gated and for_file and given != found.token:
            self._fail(403 if given else 401, "GatedRepo")
            return None
        return found

    def _info(self, key: str, name: str, revision: str, body: bool) -> None:
        found = self._admitted(key, for_file=False)
        if found is None:
            return
        commit = found.resolve(revision)
        if commit is None:
            self._fail(404, "RevisionNotFound")
            return
        siblings = [
            {
                "rfilename": path,
                "size": len(data),
                "blobId": commit_of(path),
                "lfs": {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130},
            }
            for path, data in found.commits[commit].items()
        ]
        info = {
            "id": name,
            "modelId": name,
            "sha": commit,
            "siblings": siblings,
            "tags": [],
            "private": False,
        }
        data = json.dumps(info).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def _tree(self, key: str, revision: str, folder: str, exact: bool) -> None:
        """Answer what a folder holds, or of which kind and size the paths in the request's body are."""
        asked = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        found = self._admitted(key, for_file=False)
        if found is None:
            return
        commit = found.resolve(revision)
        if commit is None:
            self._fail(404, "RevisionNotFound")
            return
        files = found.commits[commit]
        folders = {"/".join(path.split("/")[:depth]) for path in files for depth in range(1, path.count("/") + 1)}
        if exact:
            wanted = set(json.loads(asked)["paths"] if asked.startswith("{") else parse_qs(asked).get("paths", []))
        else:
            start = f"{folder}/" if folder else ""
            everything = parse_qs(urlsplit(self.path).query).get("recursive") == ["true"]
            inside = [path for path in (*files, *folders) if path.startswith(start)]
            wanted = {path for path in inside if everything or "/" not in path.removeprefix(start)}
            if not wanted:
                self._fail(404, "EntryNotFound")
                return
        entries: list[dict[str, object]] = [
            {"type": "directory", "oid": commit_of(path), "size": 0, "path": path} for path in sorted(wanted & folders)
        ]
        for path in sorted(wanted & set(files)):
            size = len(files[path])
            entries.append({"type": "file", "oid": commit_of(path), "size": size, "path": path})
        self._answer(entries)

    def _answer(self, content: object) -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _file(self, name: str, revision: str, path: str, body: bool) -> None:
        found = self._admitted(name, for_file=True)
        if found is None:
            return
        commit = found.resolve(revision)
        if commit is None:
            self._fail(404, "RevisionNotFound")
            return
        data = found.commits[commit].get(path)
        if data is None:
            self._fail(404, "EntryNotFound")
            return
        start = 0
        if (span := self.headers.get("Range", "")).startswith("bytes="):
            start = int(span.removeprefix("bytes=").split("-")[0])
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", commit)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if not body:
            return
        if found.corrupt:
            data = bytes([data[0] ^ 1]) + data[1:]
        if found.cut_after >= 0:
            self.wfile.write(data[start : found.cut_after])
            self.wfile.flush()
            self.close_connection = True
            return
        self.wfile.write(data[start:])

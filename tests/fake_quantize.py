#!/usr/bin/env python3
"""A stand-in for llama-quantize: copies the model, says what the real one says, and fails on demand.

``install(folder)`` puts it beside an engine. ``FAKE_QUANTIZE`` may hold ``failed`` (says so, leaves half a file and
exits 0, as the real one does), ``exit=N``, ``mute`` (a whole file, no last line), ``slow=SECONDS`` or ``cut`` (half a
file, all the right words). ``FAKE_QUANTIZE_LOG`` names a file that gets one line, the type, per model made.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
import time
from pathlib import Path

HELP = """usage: llama-quantize [--help] [--imatrix] [--dry-run] model-f32.gguf [model-quant.gguf] type

-----------------------------------------------------------------------------
 allowed quantization types
-----------------------------------------------------------------------------

   2  or  Q4_0    :  4.34G, +0.4685 ppl @ Llama-3-8B
   8  or  Q5_0    :  5.21G, +0.1316 ppl @ Llama-3-8B
   7  or  Q8_0    :  7.96G, +0.0026 ppl @ Llama-3-8B
          COPY    : only copy tensors, no quantizing
"""


def install(folder: Path) -> Path:
    """Write an executable llama-quantize into ``folder`` and return its path."""
    path = folder / "llama-quantize"
    script = f'exec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(Path(__file__).resolve()))} "$@"\n'
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def main(words: list[str]) -> int:
    if "--help" in words:
        print(HELP)
        return 0
    flags = [word for word in words if word.startswith("--")]
    imatrix = words[words.index("--imatrix") + 1] if "--imatrix" in words else None
    base, target, kind = [word for word in words if not word.startswith("--") and word != imatrix]
    data = Path(base).read_bytes()
    print("[   1/   1] output.weight - [32, 286, 1, 1], type = f32, size = 0.03 MiB")
    if "--dry-run" not in flags:
        failure = _make(Path(target), data, kind)
        if failure is not None:
            return failure
    print(f"llama_model_quantize_impl: quant size  = {len(data) / 2**20:.2f} MiB (4.50 BPW)")
    return 0


def _make(target: Path, data: bytes, kind: str) -> int | None:
    mode, _, value = os.environ.get("FAKE_QUANTIZE", "").partition("=")
    if mode == "slow":
        target.write_bytes(data[: len(data) // 2])
        time.sleep(float(value))
    if mode in ("failed", "cut"):
        target.write_bytes(data[: len(data) // 2])
        if mode == "failed":
            print("llama_model_quantize: failed to quantize: this quantization requires an imatrix!", file=sys.stderr)
            return 0
        return None
    # Bytes after the last tensor are nobody's: they make the types' files differ.
    target.write_bytes(data + kind.encode().ljust(32, b"\0"))
    if path := os.environ.get("FAKE_QUANTIZE_LOG"):
        with Path(path).open("a") as log:
            log.write(f"{kind}\n")
    if mode == "exit":
        return int(value)
    return 0 if mode == "mute" else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

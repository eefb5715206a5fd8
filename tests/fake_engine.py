#!/usr/bin/env python3
"""A stand-in for llama-perplexity that fails on demand. Takes the same arguments, prints the same lines.

``install(folder)`` puts an executable ``llama-perplexity`` there. Without further instruction it behaves like
mainline build 11434: it reads the ``-bf`` file, checks ``-np`` and ``-c``, scores, and exits 0. With the
known-answer model (llmc/engine/known_answer.py, default logits) it gives that model's answers, so it passes
the probe; with any other model file about three answers in four are right, the same ones every time.

``FAKE_ENGINE`` holds comma-separated modes:

    layout      printf (ik_llama.cpp), old (February 2025), jsonl, colours, no-prefix, quiet (as -lv 0),
                mute (as --log-disable)
    answers     right, wrong, always=K (option K always), share=PERCENT (about that many right)
    rows        cut=K (silent end after row K), skip=K, double=K, swap=K (K and K+1), impossible=K,
                extra=K (K rows too many), garbage (random bytes between the rows), crlf
    summary     final=wrong|missing|twice|nan, chance=wrong|missing, announce=N|missing, read=N|missing
    silent failure  error=options|context|decode|malformed (the line, then exit 0; at=K: after row K)
    end         exit=N, signal=N (at=K: after row K instead of at the end)
    time        hang=loading|before|during|after (sleeps without using the CPU), spin=... (uses it),
                slow=SECONDS (per row), linger=SECONDS (after everything was said)
    stubborn    ignore-int, ignore-term
    children    child (holds the pipes open and stays), daemon (double fork, setsid, pipes closed),
                orphan (double fork, setsid, pipes held)
    files       rewrite-bench, rewrite-model (appends a byte while it runs)
    nothing     silent (no output at all, exit 0)

``FAKE_ENGINE_ONLY`` limits the modes to runs in whose argument list it occurs as a substring (a benchmark's
name, say); other runs, the probe's for example, are then ordinary. ``FAKE_ENGINE_LOG`` names a file to which
one JSON line per call is appended: argv, pid, the environment, and pids of children. ``FAKE_ENGINE_MARK``
names a file that is created when a hang, a spin or the first ``slow`` row is reached.
"""

from __future__ import annotations

import json
import math
import os
import random
import shlex
import signal
import stat
import struct
import sys
import time
import zlib
from pathlib import Path

HELP = """----- common params -----

-h,    --help, --usage                  print usage and exit
--version                               show version and build info
-t,    --threads N                      number of CPU threads to use (default: -1)
-tb,   --threads-batch N                number of threads to use for batches
-c,    --ctx-size N                     size of the prompt context (default: 512, 0 = loaded from model)
                                        (env: LLAMA_ARG_CTX_SIZE)
-b,    --batch-size N                   logical maximum batch size (default: 2048)
-ub,   --ubatch-size N                  physical maximum batch size (default: 512)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto', default: 'auto')
-p,    --prompt PROMPT                  prompt to start with
--escape, --no-escape                   whether to process escapes sequences (default: false)
-e                                      process escapes sequences
-f,    --file FNAME                     a file containing the prompt (default: none)
-bf,   --binary-file FNAME              binary file containing the prompt (default: none)
-np,   --parallel N                     number of parallel sequences to decode (default: 1)
-kvu,  --kv-unified                     use single unified KV buffer
-ctk,  --cache-type-k TYPE              KV cache data type for K
-ctv,  --cache-type-v TYPE              KV cache data type for V
--lora FNAME                            path to LoRA adapter
-m,    --model FNAME                    model path to load
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM
-dev,  --device <dev1,dev2,..>          devices to use for offloading (none = don't offload)
--list-devices                          print list of available devices and exit
--log-disable                           log disable
--log-colors [on|off|auto]              set colored logging
--log-jsonl                             log as JSON lines on stdout
-lv,   --verbosity, --log-verbosity N   set the verbosity threshold (default: 3)
--log-prefix, --no-log-prefix           enable prefix in log messages
--log-timestamps                        enable timestamps in log messages
--perf, --no-perf                       whether to enable internal performance timings
--fit [on|off]                          whether to adjust unset arguments to fit in device memory

----- example-specific params -----

--hellaswag                             compute HellaSwag score over random tasks
--hellaswag-tasks N                     number of tasks to use when computing the HellaSwag score
--winogrande                            compute Winogrande score over random tasks
--multiple-choice                       compute multiple choice score over random tasks
--multiple-choice-tasks N               number of tasks to use when computing the multiple choice score
--kl-divergence                         computes KL-divergence to logits provided via --kl-divergence-base
"""
SWITCHES = {
    *("--multiple-choice", "--hellaswag", "--winogrande", "--kl-divergence", "--no-escape", "--escape", "-e"),
    *("-kvu", "--kv-unified", "--log-disable", "--log-jsonl", "--log-prefix", "--no-log-prefix"),
    *("--log-timestamps", "--perf", "--no-perf", "--list-devices", "--version", "-h", "--help", "--usage"),
}
LONG = {
    "--model": "-m",
    "--binary-file": "-bf",
    "--file": "-f",
    "--parallel": "-np",
    "--ctx-size": "-c",
    "--verbosity": "-lv",
    "--log-verbosity": "-lv",
}


def install(folder: Path, name: str = "llama-perplexity") -> Path:
    """Write an executable that runs this file with the Python of the tests; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    shift = "shift\n" if name == "llama" else ""  # `llama perplexity ...`
    script = f'exec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(Path(__file__).resolve()))} "$@"\n'
    path.write_text(f"#!/bin/sh\n{shift}{script}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return path


class Modes:
    def __init__(self, text: str) -> None:
        pairs = (word.partition("=") for word in text.split(",") if word)
        self.values = {name: value for name, _, value in pairs}

    def __contains__(self, name: str) -> bool:
        return name in self.values

    def text(self, name: str) -> str:
        return self.values.get(name, "")

    def number(self, name: str, default: int = -1) -> int:
        return int(self.values[name]) if name in self.values else default


class Printer:
    """llama.cpp's logger in the layouts it has had; ``plain`` is its LOG(), which goes to stdout."""

    def __init__(self, modes: Modes, given: dict[str, str]) -> None:
        self.printf = "printf" in modes
        self.jsonl = "jsonl" in modes or "--log-jsonl" in given
        self.colours = "colours" in modes or given.get("--log-colors") == "on"
        self.prefix = not (self.printf or {"no-prefix", "old"} & set(modes.values) or "--no-log-prefix" in given)
        self.mute = "mute" in modes or "--log-disable" in given
        self.quiet = "quiet" in modes or given.get("-lv", "3") in ("0", "1", "2")
        self.crlf = "crlf" in modes
        self.started = time.monotonic()

    def write(self, fd: int, text: str) -> None:
        if self.crlf:
            text = text.replace("\n", "\r\n")
        data = text.encode("utf-8", "surrogateescape")
        while data:
            data = data[os.write(fd, data) :]

    def plain(self, text: str) -> None:
        if self.jsonl:
            self._json("none", text)
        elif not self.mute:
            self.write(1, text)

    def info(self, text: str) -> None:
        self._log("I", "info", text)

    def error(self, text: str, *, always_stderr: bool = False) -> None:
        if self.printf and not self.mute:
            self.write(2 if always_stderr else 1, text)
        else:
            self._log("E", "error", text)

    def _json(self, level: str, text: str) -> None:
        micros = int(1e6 * (time.monotonic() - self.started))
        entry = {"type": "log", "time": micros, "level": level, "msg": text}
        self.write(1, json.dumps(entry, separators=(",", ":"), ensure_ascii=False) + "\n")

    def _log(self, letter: str, level: str, text: str) -> None:
        if self.mute or (self.quiet and not self.printf):
            return
        if self.jsonl:
            self._json(level, text)
        elif self.printf:
            self.write(1, text)
        else:
            self.write(2, self._head(letter) + text)

    def _head(self, letter: str) -> str:
        if not self.prefix:
            return ""
        micros = int(1e6 * (time.monotonic() - self.started))
        minutes, seconds = divmod(micros // 1_000_000, 60)
        stamp = f"{minutes}.{seconds:02}.{micros // 1000 % 1000:03}.{micros % 1000:03}"
        if self.colours:
            return f"\x1b[34m{stamp}\x1b[0m \x1b[32m{letter} \x1b[0m"
        return f"{stamp} {letter} "


def parse_arguments(argv: list[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    words = iter(argv)
    for word in words:
        if word not in HELP.replace(",", " ").split():
            os.write(2, f"error: invalid argument: {word}\n".encode("utf-8", "surrogateescape"))
            sys.exit(1)
        name = LONG.get(word, word)
        given[name] = "" if name in SWITCHES else next(words, "")
    return given


def read_tasks(data: bytes) -> tuple[list[tuple[str, list[str], int]], int, int]:
    """Return (tasks, number claimed, index of the task that cannot be read or -1), checking no more."""
    if len(data) < 4:
        return [], 0, -1
    (count,) = struct.unpack_from("<I", data)
    at = 4 + 4 * count
    tasks = []
    for index in range(count):
        try:
            question, at = _text(data, at)
            (width,) = struct.unpack_from("<I", data, at)
            at += 4
            options = []
            for _ in range(width):
                option, at = _text(data, at)
                options.append(option)
            labels = struct.unpack_from(f"<{width}i", data, at)
            at += 4 * width + 4
            if at > len(data):
                raise ValueError
        except (struct.error, ValueError):
            return tasks, count, index
        tasks.append((question, options, labels.index(1) if 1 in labels else -1))
    return tasks, count, -1


def _text(data: bytes, at: int) -> tuple[str, int]:
    (length,) = struct.unpack_from("<I", data, at)
    if length == 0 or at + 4 + length > len(data):
        raise ValueError("cut short")
    return data[at + 4 : at + 4 + length].decode("utf-8", "replace"), at + 4 + length


class Scorer:
    """Chooses options, and counts tokens: the known-answer model's, else four bytes to one."""

    def __init__(self, model: bytes, modes: Modes) -> None:
        self.modes = modes
        self.known = None
        if b"known-answer" in model[:4096]:
            sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
            from llmc.engine.known_answer import KnownAnswerModel

            self.known = KnownAnswerModel()

    def tokens(self, question: str, options: list[str]) -> int:
        if self.known is None:
            return (len(question) + sum(map(len, options))) // 4 + len(options)
        sequences = [self.known.tokenize(f"{question} {option}") for option in options]
        shared = 0
        while shared < min(map(len, sequences)) and len({s[shared] for s in sequences}) == 1:
            shared += 1
        return shared + sum(len(s) - shared for s in sequences)

    def right(self, question: str, options: list[str], gold: int) -> bool:
        if "right" in self.modes or "wrong" in self.modes:
            return "right" in self.modes
        if "always" in self.modes:
            return gold == self.modes.number("always")
        if self.known is not None and "share" not in self.modes:
            return self.known.choice(question, options) == gold
        return zlib.crc32(question.encode()) % 100 < self.modes.number("share", 75)


class Engine:
    def __init__(self, argv: list[str], modes: Modes) -> None:
        self.modes = modes
        self.given = parse_arguments(argv)
        self.printer = Printer(modes, self.given)
        self.children: list[int] = []
        self.at = modes.number("at", 0)

    def run(self) -> int:
        for flag, text in (
            ("-h", HELP),
            ("--help", HELP),
            ("--usage", HELP),
            ("--list-devices", "Available devices:\n"),
        ):
            if flag in self.given:
                os.write(1, text.encode())
                return 0
        if "--version" in self.given:
            os.write(2, b"version: 0.5.0-dev (build 11434, commit fa4e000)\nbuilt with a fake for tests\n")
            return 0
        for name, number in (("ignore-int", signal.SIGINT), ("ignore-term", signal.SIGTERM)):
            signal.signal(number, signal.SIG_IGN if name in self.modes else signal.SIG_DFL)
        self._leave_children()
        self._log_call()
        if "silent" in self.modes:
            return 0
        self._stop_here("loading")
        return self._work()

    def _work(self) -> int:
        say = self.printer
        path = self.given.get("-bf", self.given.get("-f", ""))
        try:
            data = Path(path).read_bytes()
        except OSError:
            os.write(
                2,
                f"error while handling argument \"-bf\": error: failed to open file '{path}'\n".encode(
                    "utf-8", "surrogateescape"
                ),
            )
            return 1
        read = self.modes.text("read")
        if read != "missing":
            os.write(2, f"Read {read or len(data)} bytes from binary file {path}\n".encode("utf-8", "surrogateescape"))
        try:
            model = Path(self.given.get("-m", "")).read_bytes()
        except OSError:
            say.error(f"llama_model_load_from_file_impl: failed to load model '{self.given.get('-m', '')}'\n")
            say.error("llama_perplexity: unable to load model\n")
            return 1
        say.info("system_info: n_threads = 2 (n_threads_batch = 2) / 2 | CPU : FAKE = 1 | \n")
        for name, option in (("rewrite-bench", "-bf"), ("rewrite-model", "-m")):
            if name in self.modes:
                with Path(self.given[option]).open("ab") as stream:
                    stream.write(b"\n")
        if "--multiple-choice" not in self.given:
            say.info("perplexity: tokenizing the input ..\n")
            return 0
        return self._score(data, Scorer(model, self.modes))

    def _score(self, data: bytes, scorer: Scorer) -> int:
        say = self.printer
        tasks, count, bad = read_tasks(data)
        if count == 0:
            say.error("multiple_choice_score: no tasks\n")
            return 0
        announce = self.modes.text("announce")
        if announce != "missing":
            say.info(f"multiple_choice_score: there are {announce or count} tasks in prompt\n")
        wanted = int(self.given.get("--multiple-choice-tasks", "0"))
        if 0 < wanted < count:
            say.info(f"multiple_choice_score: selecting {wanted} random tasks from {count} tasks available\n")
            tasks = random.Random(1).sample(tasks, wanted)
        else:
            say.info("multiple_choice_score: reading tasks")
            say.plain("." * len(tasks))
            if bad >= 0:
                say.error(f"multiple_choice_score: failed to read task {bad + 1} of {count}\n")
                return 0
            say.plain("done\n")
        say.info("multiple_choice_score: preparing task data")
        say.plain("." * len(tasks))
        if self.modes.text("error") == "malformed":
            say.error("multiple_choice_score: found 1 malformed tasks\n")
            return 0
        say.plain("done\n")
        self._stop_here("before")
        say.info(f"multiple_choice_score : calculating TruthfulQA score over {len(tasks)} tasks.\n")
        say.plain("\ntask\tacc_norm\n")
        correct = self._rows(tasks, scorer)
        if correct is None:
            return 0
        say.plain("\n")
        self._summary(correct, len(tasks), sum(len(options) for _, options, _ in tasks))
        self._stop_here("after")
        if "linger" in self.modes:
            self._mark()
            time.sleep(float(self.modes.text("linger")))
        return self._end()

    def _rows(self, tasks: list[tuple[str, list[str], int]], scorer: Scorer) -> int | None:
        """Print a row per task; return how many were right, or None when the work ended in silence."""
        sequences = max(4, int(self.given.get("-np", "1")))
        context = int(self.given.get("-c", "512")) * (1 if self.printer.printf or "old" in self.modes else sequences)
        held = ""
        correct = 0
        for number, (question, options, gold) in enumerate(tasks, start=1):
            if (failure := self._failure(number, question, options, scorer, sequences, context)) is not None:
                self.printer.error(failure, always_stderr=True)
                return None
            correct += scorer.right(question, options, gold)
            row = f"{number}\t{100 * correct / number:.8f}\n"
            if self.modes.number("impossible") == number:
                row = f"{number}\t{100 * (correct + 0.37) / (number + 1):.8f}\n"
            held = self._print_row(number, row, held)
            if number == self.modes.number("cut"):
                self.printer.plain(held)
                return None
            if number == (len(tasks) + 1) // 2:
                self._stop_here("during")
            if number == self.at and {"exit", "signal"} & set(self.modes.values):
                os._exit(self._end())
        for extra in range(self.modes.number("extra", 0)):
            number = len(tasks) + 1 + extra
            self.printer.plain(f"{number}\t{100 * correct / number:.8f}\n")
        return correct

    def _print_row(self, number: int, row: str, held: str) -> str:
        """Print a row as the modes have it; return what is held back to come after the next one."""
        if "slow" in self.modes:
            self._mark()
            time.sleep(float(self.modes.text("slow")))
        if "garbage" in self.modes:
            os.write(1, bytes(random.Random(number).choices(range(256), k=40)) + b"\n")
        if number == self.modes.number("skip"):
            return held
        if number == self.modes.number("swap"):
            return row
        self.printer.plain(row)
        if number == self.modes.number("double"):
            self.printer.plain(row)
        if held:
            self.printer.plain(held)
        return ""

    def _failure(
        self, number: int, question: str, options: list[str], scorer: Scorer, sequences: int, context: int
    ) -> str | None:
        kind = self.modes.text("error") if number == self.at + 1 else ""
        task = number - 1
        if kind == "decode":
            return "multiple_choice_score: llama_decode() failed\n"
        ancient = self.printer.printf or "old" in self.modes
        if kind == "options" or (len(options) > sequences and not ancient):
            value = f"-np|--parallel value (at least {len(options)})"
            return f"multiple_choice_score : task {task} requires a higher {value}\n"
        tokens = scorer.tokens(question, options)
        if kind == "context" or tokens > context:
            requires = "" if ancient else f" (requires {tokens} tokens)"
            return f"multiple_choice_score : task {task} does not fit in the context window{requires}\n"
        return None

    def _summary(self, correct: int, tasks: int, options: int) -> None:
        say = self.printer
        share, final = correct / tasks, self.modes.text("final")
        if final == "wrong":
            share = share - 0.1 if share > 0.5 else share + 0.1
        space = " " if say.printf else ""
        line = f"{space}Final result: {100 * share:.4f} +/- {_deviation(share, tasks, '-nan')}\n"
        if final == "nan":
            line = f"{space}Final result: nan +/- nan\n"
        if final != "missing":
            say.info(line)
        if final == "twice":
            say.info(line)
        chance = tasks / options
        if self.modes.text("chance") == "wrong":
            chance += 0.05
        if self.modes.text("chance") != "missing":
            say.info(f"Random chance: {100 * chance:.4f} +/- {_deviation(chance, tasks, 'inf')}\n")
        say.info("\n")
        if not say.printf:
            say.plain("\n")

    def _end(self) -> int:
        if "signal" in self.modes:
            number = self.modes.number("signal")
            signal.signal(number, signal.SIG_DFL) if number != signal.SIGKILL else None
            os.kill(os.getpid(), number)
            time.sleep(60)
        return self.modes.number("exit", 0)

    def _stop_here(self, point: str) -> None:
        if self.modes.text("hang") == point:
            self._mark()
            while True:
                time.sleep(1e6)
        if self.modes.text("spin") == point:
            self._mark()
            while True:
                pass

    def _leave_children(self) -> None:
        if "child" in self.modes:
            self.children.append(self._spawn())
        for name in ("daemon", "orphan"):
            if name in self.modes:
                self._daemonize(hold_pipes=name == "orphan")

    @staticmethod
    def _spawn() -> int:
        pid = os.fork()
        if pid == 0:
            while True:
                time.sleep(1e6)
        return pid

    def _daemonize(self, *, hold_pipes: bool) -> None:
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            os.setsid()
            pid = os.fork()
            if pid:
                os.write(writer, str(pid).encode())
                os._exit(0)
            if not hold_pipes:
                null = os.open(os.devnull, os.O_RDWR)
                for fd in range(3):
                    os.dup2(null, fd)
            while True:
                time.sleep(1e6)
        os.waitpid(between, 0)
        self.children.append(int(os.read(reader, 32)))

    def _log_call(self) -> None:
        if path := os.environ.get("FAKE_ENGINE_LOG"):
            entry = {
                "argv": sys.argv[1:],
                "pid": os.getpid(),
                "children": self.children,
                "env": dict(os.environ),
            }
            with Path(path).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(entry) + "\n")

    @staticmethod
    def _mark() -> None:
        if path := os.environ.get("FAKE_ENGINE_MARK"):
            Path(path).touch()


def _deviation(share: float, tasks: int, without: str) -> str:
    return f"{100 * math.sqrt(share * (1 - share) / (tasks - 1)):.4f}" if tasks > 1 else without


def main() -> int:
    argv = sys.argv[1:]
    only = os.environ.get("FAKE_ENGINE_ONLY", "")
    meant = not only or any(only in word for word in argv)
    return Engine(argv, Modes(os.environ.get("FAKE_ENGINE", "") if meant else "")).run()


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main())

"""What llama-perplexity prints, in each of the layouts it has had: material for tests.

``render(layout, correct)`` gives both streams of a complete run in which ``correct`` (a string of 0 and 1) says
which tasks were right. The model's metadata, where the layout shows it, holds whatever could be taken for
output: rows, final lines, errors.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace

LAYOUTS = (
    "mainline",  # prefix and timestamps, library logs hidden
    "verbose",  # the same at -lv 4
    "no-prefix",
    "colours",
    "jsonl",
    "quiet",  # -lv 0
    "old",  # February 2025: no prefix, library logs shown
    "ik",  # printf: nearly all on stdout, leading space before the final line
    "windows",  # as old, with CR LF
)
# The layouts in which everything is said.
TALKATIVE = tuple(layout for layout in LAYOUTS if layout != "quiet")
TEMPLATE = "{% Final result: 99.0000 +/- 1.0000 %}3\t99.00000000"
NAME = "Nasty\n1\t100.00000000\nFinal result: 99.0000 +/- 1.0000\nmultiple_choice_score: no tasks\n7\t9.00000000"


@dataclass(frozen=True)
class Output:
    stdout: bytes
    stderr: bytes

    def replaced(self, old: bytes, new: bytes) -> Output:
        """The same with ``old`` replaced in both streams; it must be there."""
        assert old in self.stdout + self.stderr, old
        return replace(self, stdout=self.stdout.replace(old, new), stderr=self.stderr.replace(old, new))


def row_lines(correct: str) -> list[str]:
    right, lines = 0, []
    for done, mark in enumerate(correct, 1):
        right += mark == "1"
        lines.append(f"{done}\t{100.0 * right / done:.8f}")
    return lines


def summary_lines(correct: str, chance: float = 0.25) -> tuple[str, str]:
    share = correct.count("1") / len(correct)
    return (
        f"Final result: {_summary(share, len(correct))}",
        f"Random chance: {_summary(chance, len(correct))}",
    )


def _summary(share: float, tasks: int) -> str:
    if tasks == 1:
        return f"{100 * share:.4f} +/- " + ("-nan" if share in (0, 1) else "inf")
    return f"{100 * share:.4f} +/- {100 * math.sqrt(share * (1 - share) / (tasks - 1)):.4f}"


def render(layout: str, correct: str, *, size: int = 1687, tasks: int | None = None, chance: float = 0.25) -> Output:
    """Return the output of a complete run; with ``tasks`` beyond those in ``correct``, of a selection."""
    selected = tasks is not None and tasks != len(correct)
    announced = tasks if tasks is not None else len(correct)
    score = [f"multiple_choice_score: there are {announced} tasks in prompt"]
    if selected:
        score.append(f"multiple_choice_score: selecting {len(correct)} random tasks from {announced} tasks available")
    dots = "." * len(correct) + "done\n"
    read = f"Read {size} bytes from binary file some.bin\n"
    final, random_chance = summary_lines(correct, chance)
    table = "\ntask\tacc_norm\n" + "".join(f"{line}\n" for line in row_lines(correct))
    count = f"multiple_choice_score : calculating TruthfulQA score over {len(correct)} tasks."
    reading = "" if selected else "multiple_choice_score: reading tasks"
    preparing = "multiple_choice_score: preparing task data"

    if layout == "ik":
        stdout = "\n".join(score) + "\n" + (reading + dots if reading else "") + preparing + dots + count + "\n"
        stdout += table + f"\n {final}\n{random_chance}\n\n"
        stderr = read + "main: build = 4840 (0123abcd)\nmain: seed  = 1234\n" + _metadata("llm_load_print_meta")
        stderr += "....................\nllama_init_from_model: n_ctx         = 512\n" + _timings("llama_print_timings")
        return Output(stdout.encode(), stderr.encode())
    if layout == "jsonl":
        messages = [(line + "\n", "info") for line in score]
        messages += [
            (reading, "info"),
            *[(".", "none")] * len(correct),
            ("done\n", "none"),
            (preparing, "info"),
        ]
        messages += [(count + "\n", "info"), ("\ntask\tacc_norm\n", "none")]
        messages += [(f"{line}\n", "none") for line in row_lines(correct)]
        messages += [("\n", "none"), (final + "\n", "info"), (random_chance + "\n", "info"), ("\n", "info")]
        name = {"type": "log", "time": 1, "level": "info", "msg": f"print_info: general.name = {NAME}\n"}
        entries = [
            {"type": "log", "time": at, "level": level, "msg": text} for at, (text, level) in enumerate(messages)
        ]
        stdout = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in [name, *entries])
        return Output(stdout.encode(), read.encode())
    stdout = (dots if reading else "") + dots + table + "\n\n"
    if layout == "quiet":
        return Output(stdout.encode(), read.encode())
    stamp = "" if layout in ("no-prefix", "old", "windows") else "0.02.379.816 I "
    if layout == "colours":
        stamp = "\x1b[34m0.02.379.816\x1b[0m \x1b[32mI \x1b[0m"
    shown = _metadata("print_info") + "llama_context: n_seq_max     = 4\nllama_context: n_ctx         = 512\n"
    lines = shown.splitlines() if layout in ("verbose", "old", "windows") else []
    name_at = next((i for i, line in enumerate(lines) if "general.name" in line), len(lines))
    raw = set(range(name_at + 1, name_at + 1 + NAME.count("\n")))  # the rest of the name has no prefix
    library = "".join(f"{'' if i in raw else stamp}{line}\n" for i, line in enumerate(lines))
    stderr = read + library + "".join(f"{stamp}{line}\n" for line in score)
    stderr += (stamp + reading if reading else "") + stamp + preparing + stamp + count + "\n"
    stderr += f"{stamp}{final}\n{stamp}{random_chance}\n{stamp}\n"
    if lines:
        stderr += "".join(f"{stamp}{line}\n" for line in _timings("llama_perf_context_print").splitlines())
    if layout == "windows":
        return Output(stdout.replace("\n", "\r\n").encode(), stderr.replace("\n", "\r\n").encode())
    return Output(stdout.encode(), stderr.encode())


def _metadata(function: str) -> str:
    return (
        "llama_model_loader: - kv   0:   general.architecture str  = llama\n"
        "llama_model_loader: - kv   1:   general.name str  = Nasty\\n1\\t100\n"
        f"llama_model_loader: - kv   2:   tokenizer.chat_template str  = {TEMPLATE}\n"
        "llama_model_loader: - kv   3:   general.description str  = error: failed to open file 'x'\n"
        f"{function}: n_ctx_train   = 8192\n"
        f"{function}: general.name  = {NAME}\n"
        f"{function}: vocab type    = BPE\n"
    )


def _timings(function: str) -> str:
    return (
        f"{function}:        load time =     215.29 ms\n"
        f"{function}: prompt eval time =    1795.95 ms /   384 tokens (    4.68 ms per token,   213.81 t/s)\n"
        f"{function}:       total time =    2121.68 ms /   385 tokens\n"
    )

"""The launch: how many sequences, how much context, which flags, and the memory that takes.

The layout is a function of the benchmark, the vocabulary and the engine's flavour, never of the memory this
machine happens to have free, so that two quantizations of one model, on two machines, are scored alike. Only
when it does not fit the budget is it cut, and the record says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from llmc.engine.flags import UserFlags, parse
from llmc.engine.gguf_model import ModelFacts, kv_bytes_per_token
from llmc.engine.preflight import Preflight
from llmc.engine.probe import MANY_SEQUENCES, ProbeResult
from llmc.errors import RefusedError, UsageError
from llmc.findings import Finding, finding
from llmc.mcbin import MAX_OPTIONS, BinFacts

TOTAL_TOKENS = 2048  # total context for speed: more only costs memory, less makes smaller batches
SEQUENCES = 16
LLAMA_MAX_SEQ = 256  # llama.h, since mid-2025
PAD = 256  # llama.cpp rounds a unified context up to this
DEFAULT_UBATCH, DEFAULT_BATCH = 512, 2048
MIB = 1 << 20


@dataclass(frozen=True)
class Memory:
    """Expected peak in bytes, by cause."""

    weights: int
    kv_cache: int
    logits: int  # total context x vocabulary x 4, zero-filled at the start by llama-perplexity itself
    outputs: int  # logits of one batch inside libllama
    compute: int

    @property
    def total(self) -> int:
        return self.weights + self.kv_cache + self.logits + self.outputs + self.compute


@dataclass(frozen=True)
class Plan:
    """One launch. ``arguments`` follow the command, the model and the benchmark."""

    sequences: int
    context: int  # the value of -c
    total_context: int
    batch: int
    ubatch: int
    flash_attention: str
    arguments: tuple[str, ...]
    memory: Memory
    basis: str  # tokens or bounds
    findings: tuple[Finding, ...]

    def command(self, engine: Sequence[str], model: Path, benchmark: Path) -> list[str]:
        """Return the full argument list."""
        return [*engine, "-m", str(model), "--multiple-choice", "-bf", str(benchmark), *self.arguments]

    def layout(self) -> dict[str, int | str]:
        return {
            "np": self.sequences,
            "c": self.context,
            "total_context": self.total_context,
            "b": self.batch,
            "ub": self.ubatch,
            "fa": self.flash_attention,
            "basis": self.basis,
        }


def plan(
    probe: ProbeResult,
    model: ModelFacts,
    facts: BinFacts,
    preflight: Preflight,
    *,
    user: Sequence[str] = (),
    budget: int | None = None,
    alternative: bool = False,
) -> Plan:
    """Return the launch for a model on a benchmark file.

    ``user`` are flags from after ``--``, ``budget`` the bytes the engine may take. ``alternative`` asks for a
    second layout with other batches, for measuring the numerical noise between layouts. Raises RefusedError
    (too-many-options, context-too-small, memory-budget) with the number that would do.
    """
    flags = parse(user, probe.flags)
    if any(flags.has(name) for name in ("-np", "-c", "-b", "-ub")) and alternative:
        raise UsageError("--layout-check chooses -np and -c itself", "leave -np, -c, -b and -ub out")
    findings: list[Finding] = []
    sequences = _sequences(probe, facts, flags, alternative)
    if model.context_length and preflight.longest_sequence > model.context_length:
        findings.append(
            finding(
                "beyond-training-context",
                f"the longest question with one option takes {preflight.longest_sequence} tokens, the model was "
                f"trained on {model.context_length}",
            )
        )
    batch = flags.number("-b")
    if batch is not None and batch < sequences:
        # Every sequence wants room for the logits of one token; llama.cpp ends itself without it.
        raise RefusedError(
            "context-too-small",
            f"-b {batch} is below the {sequences} sequences of the run",
            f"pass -b {sequences} or more, or leave it out",
        )
    total = _total_context(probe, preflight, flags, sequences, alternative)
    if budget is not None and _memory(model, total, flags).total > budget and not flags.has("-c"):
        total = _cut(model, preflight, flags, sequences, total, budget, probe)
        findings.append(
            finding("layout-cut-to-memory", f"total context cut to {total} tokens to stay within {_mib(budget)}")
        )
    memory = _memory(model, total, flags)
    if budget is not None and memory.total > budget:
        raise RefusedError(
            "memory-budget",
            f"the run needs about {_mib(memory.total)} ({_mib(memory.logits)} of it for {_padded(total)} x "
            f"{model.vocab_size} logits), the budget is {_mib(budget)}",
            f"allow it with --memory-budget {_mib(memory.total).replace(' ', '')}, or use a machine with more memory",
        )
    context = total // sequences if probe.context_rule == "multiplied" else total
    attention, arguments = _flags(probe, flags, sequences, context)
    return Plan(
        sequences=sequences,
        context=context,
        total_context=total,
        batch=min(batch or DEFAULT_BATCH, total),
        ubatch=flags.number("-ub") or DEFAULT_UBATCH,
        flash_attention=attention,
        arguments=tuple(arguments),
        memory=memory,
        basis=preflight.basis,
        findings=tuple(findings),
    )


def _sequences(probe: ProbeResult, facts: BinFacts, flags: UserFlags, alternative: bool) -> int:
    widest = facts.widest
    if widest > MAX_OPTIONS:
        raise RefusedError("too-many-options", f"a task has {widest} options, llama.cpp scores at most {MAX_OPTIONS}")
    asked = flags.number("-np")
    if asked is not None:
        if max(4, asked) < widest:
            raise RefusedError(
                "too-many-options",
                f"-np {asked} is below the widest task's {widest} options",
                f"pass -np {widest} or more, or leave it out",
            )
        # Above what the probe tried, an engine may allow up to llama.cpp's own limit.
        most = LLAMA_MAX_SEQ if probe.max_sequences >= MANY_SEQUENCES else probe.max_sequences
        if asked > most:
            raise RefusedError(
                "too-many-options",
                f"-np {asked} is more than this engine's {most} sequences",
                f"pass -np {max(4, widest)} to {most}, or leave it out",
            )
        return max(4, asked)
    if probe.max_sequences < widest:
        raise RefusedError(
            "too-many-options",
            f"this engine runs at most {probe.max_sequences} sequences, the widest task has {widest} options",
            "use a newer llama.cpp: `llmc engine install`",
        )
    sequences = 2 * SEQUENCES if alternative else SEQUENCES
    while sequences < widest:
        sequences *= 2
    return min(sequences, probe.max_sequences)


def _total_context(
    probe: ProbeResult, preflight: Preflight, flags: UserFlags, sequences: int, alternative: bool
) -> int:
    longest = preflight.longest_tokens
    asked = flags.number("-c")
    if asked is not None:
        total = asked * sequences if probe.context_rule == "multiplied" else asked
        if _usable(total, probe) < longest:
            need = -(-longest // sequences) if probe.context_rule == "multiplied" else longest
            raise RefusedError(
                "context-too-small",
                f"-c {asked} gives {_usable(total, probe)} tokens in all, "
                f"task {preflight.longest_task} takes {longest}",
                f"pass -c {need} or more, or leave it out",
            )
        return total
    target = TOTAL_TOKENS // 2 if alternative else TOTAL_TOKENS
    return _rounded(max(target, longest), sequences)


def _usable(total: int, probe: ProbeResult) -> int:
    return _padded(total) if probe.context_rule == "multiplied" else total


def _rounded(tokens: int, sequences: int) -> int:
    """The smallest total that is a multiple of the padding and of the number of sequences."""
    step = max(PAD, sequences)
    return -(-tokens // step) * step


def _padded(tokens: int) -> int:
    return -(-tokens // PAD) * PAD


def _cut(
    model: ModelFacts,
    preflight: Preflight,
    flags: UserFlags,
    sequences: int,
    total: int,
    budget: int,
    probe: ProbeResult,
) -> int:
    least = _rounded(preflight.longest_tokens, sequences)
    while total > least and _memory(model, total, flags).total > budget:
        total = max(least, _rounded(total // 2, sequences))
    return total


def _memory(model: ModelFacts, total: int, flags: UserFlags) -> Memory:
    """Expected peak memory of the engine process, from the sizes it allocates (perplexity.cpp, llama-context).

    ``outputs`` assumes that half of a batch needs logits, more than text options of ten tokens ever do;
    ``compute`` is one micro-batch of logits, twice the activations' width and a constant.
    """
    vocab = model.vocab_size
    batch = min(flags.number("-b") or DEFAULT_BATCH, total)
    ubatch = min(flags.number("-ub") or DEFAULT_UBATCH, batch)
    padded = _padded(total)
    return Memory(
        weights=model.size,
        kv_cache=int(padded * kv_bytes_per_token(model)),
        logits=padded * vocab * 4,
        outputs=batch * vocab * 4 // 2,
        compute=ubatch * vocab * 4 + ubatch * model.embedding_length * 64 + 32 * MIB,
    )


def _flags(probe: ProbeResult, flags: UserFlags, sequences: int, context: int) -> tuple[str, list[str]]:
    arguments: list[str] = []
    if not flags.has("-np"):
        arguments += ["-np", str(sequences)]
    if not flags.has("-c"):
        arguments += ["-c", str(context)]
    attention = flags.values["-fa"] or "on" if flags.has("-fa") else "default"
    if not flags.has("-fa") and _flash_attention_off(probe, flags):
        attention = "off"
        if probe.flash_attention == "value":
            arguments += ["-fa", "off"]
    if probe.needs_kv_unified and not flags.has("-kvu"):
        arguments.append("-kvu")
    base = list(probe.base_arguments)
    if flags.has("-lv") or flags.has("-v"):
        base = [word for i, word in enumerate(base) if word != "-lv" and (i == 0 or base[i - 1] != "-lv")]
    return attention, [*arguments, *base, *flags.given]


def _flash_attention_off(probe: ProbeResult, flags: UserFlags) -> bool:
    """On the CPU flash attention makes answers depend on the layout, at no gain in speed.

    A quantized V cache cannot do without it, and a GPU's own default stays.
    """
    on_gpu = bool(probe.devices) and flags.values.get("-ngl") != "0" and flags.values.get("-dev") != "none"
    quantized_v = (flags.values.get("-ctv") or "f16") not in ("f16", "f32", "bf16")
    return probe.flash_attention != "none" and not on_gpu and not quantized_v


def _mib(count: int) -> str:
    return f"{-(-count // MIB)} MiB"


def parse_bytes(text: str) -> int:
    """Return the bytes in ``8G``, ``512MiB``, ``4096M`` or a plain number of bytes; UsageError otherwise."""
    units = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
    cleaned = text.strip().lower().removesuffix("b").removesuffix("i")
    unit = cleaned[-1:] if cleaned[-1:].isalpha() else ""
    number = cleaned[: len(cleaned) - len(unit)].strip()
    try:
        value = float(number) * units[unit]
    except (ValueError, KeyError):
        value = 0.0
    if not 0 < value < float(1 << 60):
        raise UsageError(f"{text!r} is no amount of memory", "write for example 8G or 512M")
    return int(value)

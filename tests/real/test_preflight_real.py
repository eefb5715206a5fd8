"""Preflight against the real engine: it must count what llama-perplexity counts, to the token."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from llmc import mcbin
from llmc.engine.binding import Binding, find_binding
from llmc.engine.gguf_model import read_model
from llmc.engine.known_answer import KnownAnswerModel
from llmc.engine.preflight import Preflight, preflight
from llmc.mcbin import Task

if TYPE_CHECKING:
    from llmc.engine.locate import EngineFiles

pytestmark = pytest.mark.real

CONTEXT = 256  # total: 8 sequences of 32; each task below needs more
LAUNCHES = 20
REQUIRED = re.compile(rb"does not fit in the context window \(requires (\d+) tokens\)")

LONG = "The year 1984 saw 10,000 naïve users ask: “why 日本語?” 🦙 \\n\t" * 12
TOO_LONG = {
    "letters": Task(f"{LONG}\nAnswer:", ("A", "B", "C", "D"), 0),
    "texts of many lengths": Task("Which one?\nAnswer:", (LONG, LONG + " and more", "short", "x " * 300), 2),
    "shared first words": Task(LONG, ("the city of London", "the city of Paris", "the city"), 0),
    "numbers": Task(LONG, ("40", "41", "42", "4"), 3),
    "an option inside the prefix": Task(LONG, ("Yes", "Yes, and no"), 0),
    "question ends in white space": Task(LONG + " \n", (" a", "  b\n"), 1),
    "special tokens as text": Task(f"<|endoftext|> <s> {LONG}", ("<|im_start|>", "</s>"), 0),
    "nothing in common": Task(" ", ("dog " * 300, "   cat " * 300), 0),
}


@pytest.fixture(scope="module")
def binding(real_engine: EngineFiles) -> Binding:
    found = find_binding()
    if found is None:
        pytest.skip("the installed engine has no binding: run `llmc engine install` again")
    return found


def checked(path: Path, tasks: list[Task], model: Path, binding: Binding) -> Preflight:
    mcbin.write(path, tasks)
    result = preflight(path, read_model(model), binding, facts=mcbin.scan(path))
    assert (result.basis, result.reason) == ("tokens", "")
    return result


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("name", TOO_LONG)
def test_the_engine_requires_what_was_counted_with_a_byte_level_vocabulary(
    tmp_path: Path, real_engine: EngineFiles, binding: Binding, name: str, bos: bool
) -> None:
    # A vocabulary of some size keeps the engine busy at its exit, while its logger writes the last lines.
    model = KnownAnswerModel(add_bos=bos, padding=20_000).write(tmp_path / "known.gguf")
    result = checked(tmp_path / "x.bin", [TOO_LONG[name]], model, binding)
    assert result.add_bos is bos
    assert result.longest_tokens == engines_count(real_engine, model, tmp_path / "x.bin")


@pytest.mark.parametrize("name", TOO_LONG)
def test_the_engine_requires_what_was_counted_with_a_real_vocabulary(
    tmp_path: Path, real_engine: EngineFiles, real_model: Path, binding: Binding, name: str
) -> None:
    result = checked(tmp_path / "x.bin", [TOO_LONG[name]], real_model, binding)
    assert result.longest_tokens == engines_count(real_engine, real_model, tmp_path / "x.bin")


def engines_count(engine: EngineFiles, model: Path, bench: Path) -> int:
    """The tokens that llama-perplexity says the first task needs, when it does not fit.

    It writes its log in a thread of its own and does not wait for it at exit, so the last lines may be lost.
    """
    layout = ("-np", "8", "-c", str(CONTEXT // 8))
    for _ in range(LAUNCHES):
        done = subprocess.run(
            [*engine.command, "-m", str(model), "--multiple-choice", "-bf", str(bench), *layout],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=True,
        )
        if found := REQUIRED.search(done.stderr):
            return int(found[1])
    pytest.fail(f"no figure in {LAUNCHES} launches: {done.stderr.decode(errors='replace')[-500:]}")


def test_hazards_of_a_real_vocabulary(tmp_path: Path, real_model: Path, binding: Binding) -> None:
    """SmolLM2 splits digits and adds no BOS."""
    tasks = {
        "fine": Task("Q?\nAnswer:", ("yes", "no"), 0),
        "digits": Task("How many?\nAnswer:", ("40", "41", "42", "4"), 0),
        "words": Task("Q?\nAnswer:", ("Yes", "Yes, it is"), 0),
        "equal": Task("Q?\nAnswer:", ("same", "same"), 0),
        "equal pair of three": Task("Q?\nAnswer:", ("same", "same", "other"), 0),
        "string prefix, other tokens": Task("Q?\nAnswer:", ("cat", "cats"), 0),
        "white space": Task(" ", ("dog", "   cat"), 0),
    }
    result = checked(tmp_path / "x.bin", list(tasks.values()), real_model, binding)
    names = {slug: [list(tasks)[i] for i in found] for slug, found in result.hazards.items()}
    assert names == {"option-prefix": ["digits", "words", "equal"], "no-common-prefix": ["white space"]}


def test_piqa_has_three_tasks_with_an_option_inside_the_prefix(
    tmp_path: Path, real_model: Path, binding: Binding, shared: Path
) -> None:
    lines = (shared / "data" / "piqa" / "validation.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    tasks = [Task(f"Question: {r['goal']}\nAnswer:", (r["sol1"], r["sol2"]), r["label"]) for r in rows]
    result = checked(tmp_path / "piqa.bin", tasks, real_model, binding)
    assert result.hazards == {"option-prefix": [178, 987, 1028]}


def test_a_damaged_model_is_a_reason_not_an_error(tmp_path: Path, real_model: Path, binding: Binding) -> None:
    """A header that llmc can read and libllama cannot: the tokenizer's kind is unknown."""
    data = real_model.read_bytes()
    at = data.index(b"tokenizer.ggml.model") + len("tokenizer.ggml.model") + 4 + 8
    model = tmp_path / "damaged.gguf"
    model.write_bytes(data[:at] + b"gptX" + data[at + 4 :])
    mcbin.write(tmp_path / "x.bin", [TOO_LONG["letters"]])
    facts = mcbin.scan(tmp_path / "x.bin")
    result = preflight(tmp_path / "x.bin", read_model(model), binding, facts=facts)
    assert result.basis == "bounds" and "tokenizer" in result.reason

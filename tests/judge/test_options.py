"""Per-option figures of two runs, against plain numpy."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmc.errors import InputFileError
from llmc.judge.answers import Answers, given_record
from llmc.judge.options import option_changes
from llmc.scoring.results import ScoredItem, ScoredOption
from made_runs import record, write


def items(n: int, seed: int, noise: float = 0.0, width: int = 4) -> list[ScoredItem]:
    """Random figures; ``noise`` is added to the ones that the seed alone gives."""
    chance, other = random.Random(seed), random.Random(seed + 1)
    made = []
    for index in range(n):
        options = tuple(
            ScoredOption(
                chance.uniform(-9, -1) + noise * other.gauss(0, 1), 1 + place, 4 + place, 4, 3 + place, 3, -1.0, 1
            )
            for place in range(width)
        )
        made.append(ScoredItem(index, f"id{index}", index % width, 0, options))
    return made


def chosen(item: ScoredItem, rule: str) -> int:
    scores = [o.sum_logprob / (o.chars_bare if rule == "acc_norm" else 1) for o in item.options]
    return scores.index(max(scores))


def side(folder: Path, made: list[ScoredItem], rule: str = "acc_raw") -> Answers:
    correct = "".join("1" if chosen(item, rule) == item.gold else "0" for item in made)
    write(folder, record(correct, model=folder.name, must={"scorer": "logprobs", "rule": rule}))
    (folder / "items.jsonl").write_text("".join(item.to_json() + "\n" for item in made))
    from llmc.runs.record import load_record

    return given_record(load_record(folder), folder).required()


def distribution(item: ScoredItem) -> Any:
    weights = np.exp([o.sum_logprob for o in item.options])
    return weights / weights.sum()


@pytest.mark.parametrize("rule", ["acc_raw", "acc_norm"])
def test_figures_are_those_of_numpy(tmp_path: Path, rule: str) -> None:
    one, other = items(300, 1), items(300, 1, noise=0.8)
    found = option_changes(side(tmp_path / "a", one, rule), side(tmp_path / "b", other, rule))
    p, q = ([distribution(i) for i in made] for made in (one, other))
    divergence = np.array([float((x * np.log(x / y)).sum()) for x, y in zip(p, q, strict=True)])
    gold = np.array([y[i.gold] - x[i.gold] for x, y, i in zip(p, q, one, strict=True)])
    assert found.rule == rule
    assert found.kl.mean == pytest.approx(divergence.mean(), abs=1e-9)
    assert found.kl.se == pytest.approx(divergence.std(ddof=1) / np.sqrt(300), abs=1e-9)
    assert (found.kl_median, found.kl_99, found.kl_max) == tuple(
        pytest.approx(float(v), abs=1e-9)
        for v in (np.median(divergence), np.quantile(divergence, 0.99), divergence.max())
    )
    assert found.gold.mean == pytest.approx(gold.mean(), abs=1e-9)
    pairs = [(chosen(x, rule), chosen(y, rule), x.gold) for x, y in zip(one, other, strict=True)]
    assert found.lost == sum(x == g != y for x, y, g in pairs) > 0
    assert found.gained == sum(y == g != x for x, y, g in pairs) > 0
    assert found.other_wrong == sum(len({x, y, g}) == 3 for x, y, g in pairs) > 0
    assert found.changed == sum(x != y for x, y, _ in pairs)
    assert found.same_top == np.mean([x.argmax() == y.argmax() for x, y in zip(p, q, strict=True)])


def test_figures_that_are_equal_differ_by_nothing(tmp_path: Path) -> None:
    found = option_changes(side(tmp_path / "a", items(40, 2)), side(tmp_path / "b", items(40, 2)))
    assert (found.changed, found.kl.mean, found.kl_max, found.gold.mean, found.same_top) == (0, 0, 0, 0, 1)


def test_probabilities_that_underflow(tmp_path: Path) -> None:
    one = [
        replace(i, options=(replace(i.options[0], sum_logprob=-1.0), replace(i.options[1], sum_logprob=-2000.0)))
        for i in items(3, 1, width=2)
    ]
    other = [
        replace(i, options=(replace(i.options[0], sum_logprob=-2000.0), replace(i.options[1], sum_logprob=-1.0)))
        for i in one
    ]
    found = option_changes(side(tmp_path / "a", one), side(tmp_path / "b", other))
    assert found.kl.mean == pytest.approx(1999)


def test_by_clusters(tmp_path: Path) -> None:
    a, b = side(tmp_path / "a", items(60, 3)), side(tmp_path / "b", items(60, 3, noise=1))
    plain, grouped = option_changes(a, b), option_changes(a, b, [str(i // 6) for i in range(60)])
    assert plain.kl.mean == pytest.approx(grouped.kl.mean) and plain.kl.se != grouped.kl.se


def _edit(number: int, change: Callable[[dict[str, Any]], None]) -> Callable[[list[str]], list[str]]:
    def edit(lines: list[str]) -> list[str]:
        body = json.loads(lines[number])
        change(body)
        return [*lines[:number], json.dumps(body) + "\n", *lines[number + 1 :]]

    return edit


def _all_right(line: str) -> str:
    body = json.loads(line)
    body["options"][body["gold"]]["sum_logprob"] = -0.01
    return json.dumps(body) + "\n"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda lines: lines[:-1], "same number of items"),
        (lambda lines: [*lines, lines[-1]], "same number of items"),
        (lambda lines: [lines[1], lines[0], *lines[2:]], "part ways at item 'id0'"),
        (lambda lines: [lines[0][:30]], "line 1"),
        (lambda lines: ["\n", *lines], "line 1"),
        (lambda lines: ["[1]\n", *lines], "line 1"),
        (_edit(2, lambda body: body.update(gold=9)), "line 3: its gold option"),
        (_edit(2, lambda body: body.update(gold=(body["gold"] + 1) % 4)), "part ways"),
        (_edit(2, lambda body: body["options"].pop()), "part ways|gold option"),
        (
            _edit(1, lambda body: body["options"][0].update(sum_logprob=float("nan"))),
            "line 2: a log-probability is not",
        ),
        (_edit(1, lambda body: body["options"][0].update(sum_logprob="x")), "line 2"),
        (lambda lines: [_all_right(line) for line in lines], "by its record"),
    ],
)
def test_files_that_are_not_the_records(tmp_path: Path, edit: Callable[[list[str]], list[str]], said: str) -> None:
    a, b = side(tmp_path / "a", items(12, 4)), side(tmp_path / "b", items(12, 4, noise=0.1))
    assert b.items is not None
    lines = b.items.read_text().splitlines(keepends=True)
    b.items.write_text("".join(edit(lines)))
    with pytest.raises(InputFileError, match=said) as caught:
        option_changes(a, b)
    assert "items.jsonl" in caught.value.what


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    a, b = side(tmp_path / "a", items(3, 4)), side(tmp_path / "b", items(3, 4))
    assert b.items is not None
    b.items.write_bytes(b"\xff\xfe\x00" * 40)
    with pytest.raises(InputFileError, match="line 1"):
        option_changes(a, b)


def test_a_file_shorter_than_its_record(tmp_path: Path) -> None:
    a, b = side(tmp_path / "a", items(12, 4)), side(tmp_path / "b", items(12, 4))
    for each in (a, b):
        assert each.items is not None
        each.items.write_text("".join(each.items.read_text().splitlines(keepends=True)[:-2]))
    with pytest.raises(InputFileError, match="holds 10 items, its record 12"):
        option_changes(a, b)

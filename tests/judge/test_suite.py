"""Suites: published rows come out, every aggregation by hand, and nothing is scored around a hole."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.judge.suite import Judged, judge
from llmc.runs.suite_results import Absent, Result, TaskScore
from llmc.runs.suite_tree import Leaf, Node, Questions, find

ASKED = Questions("made-up", None, 0, ("test",), None, ())
# Humanities, social sciences, other, CSQA, PIQA, SocialIQA, CoQA, DROP, Jeopardy, NaturalQS, SQuAD; and the mean.
PUBLISHED = {
    "Olmo-3-1125-32B": ([78.3, 83.9, 75.1, 82.3, 85.6, 83.9, 96.4, 87.2, 92.3, 78.0, 98.2], 85.56),
    "Marin-8B": ([71.4, 77.4, 68.3, 75.3, 85.7, 79.8, 86.2, 63.7, 90.8, 71.5, 96.5], 78.78),
    "Apertus-8B": ([67.8, 74.7, 66.1, 72.1, 80.5, 76.3, 82.8, 47.5, 90.3, 66.7, 91.3], 74.19),
}


def leaf(path: str, metric: str = "acc_raw") -> Leaf:
    return Leaf(path, path.rpartition("/")[2], ASKED, None, metric)


def score(value: float, tasks: int = 10, **more: float) -> TaskScore:
    return TaskScore({"acc_raw": value, **more}, tasks)


@pytest.mark.parametrize("model", list(PUBLISHED))
def test_published_rows(model: str) -> None:
    """Subjects are spread around their published mean: in a mean of all tasks they would weigh 39 to 8."""
    values, mean = PUBLISHED[model]
    tree = find("olmo3-nonstem-qa-mc").tree
    results: dict[str, Result] = {}
    for part, value in zip(tree.parts, values, strict=True):
        leaves = list(part.leaves()) if isinstance(part, Node) else [part]
        spread = itertools.cycle((1.0, -1.0))
        for number, each in enumerate(leaves):
            off = 0.0 if number == 0 and len(leaves) % 2 else next(spread)
            results[each.path] = score((value + off) / 100, tasks=50 + number)
    judged = judge(tree, results)
    assert [100 * (part.score or 0) for part in judged.parts] == pytest.approx(values)
    assert judged.score is not None and round(100 * judged.score, 2) == mean
    assert judged.metric == "acc_raw" and judged.aggregate == "mean-of-means"


TREE_PARTS = (
    Node("a", "a", "mean", (leaf("a/x"), leaf("a/y"))),
    leaf("b"),
)
RESULTS: dict[str, Result] = {
    "a/x": score(0.5, 10, sum_logits_corr=-1.0),
    "a/y": score(1.0, 30, sum_logits_corr=-2.0),
    "b": score(0.2, 60, sum_logits_corr=-4.0, acc_uncond=0.3),
}


@pytest.mark.parametrize(
    ("aggregate", "expected", "gold"),
    [
        ("mean-of-means", (0.75 + 0.2) / 2, (-1.5 - 4) / 2),
        ("macro-mean", (0.5 + 1.0 + 0.2) / 3, -7 / 3),
        ("micro", (0.5 * 10 + 1.0 * 30 + 0.2 * 60) / 100, (-10 - 60 - 240) / 100),
    ],
)
def test_aggregations_by_hand(aggregate: str, expected: float, gold: float) -> None:
    judged = judge(Node("", "top", aggregate, TREE_PARTS), RESULTS)
    assert judged.score == pytest.approx(expected) == judged.metrics["acc_raw"]
    assert judged.metrics["sum_logits_corr"] == pytest.approx(gold)
    assert "acc_uncond" not in judged.metrics  # not every task has it
    assert judged.tasks == 100 and judged.parts[0].tasks == 40
    assert [node.name for node in judged.nodes()] == ["top", "a"]


def test_each_task_by_its_own_metric() -> None:
    tree = Node("", "top", "mean", (leaf("a"), leaf("b", "acc_uncond")))
    judged = judge(tree, {"a": score(0.5), "b": score(0.1, acc_uncond=0.9)})
    assert judged.score == pytest.approx(0.7) and judged.metric is None
    assert judged.metrics["acc_raw"] == pytest.approx(0.3)


@pytest.mark.parametrize("hole", ["a/x", "b"])
@pytest.mark.parametrize("absent", [Absent("untrusted", "stalled"), Absent("missing", "gated", "ask"), None])
def test_a_hole_takes_the_score_of_everything_above_it(hole: str, absent: Absent | None) -> None:
    results = {path: result for path, result in RESULTS.items() if path != hole}
    if absent is not None:
        results[hole] = absent
    judged = judge(Node("", "top", "mean-of-means", TREE_PARTS), results)
    assert judged.score is None and judged.metrics == {}
    assert [each.path for each in judged.missing()] == [hole]
    (found,) = judged.missing()
    assert found.absent == (absent or Absent("not-run", "not run"))
    first = judged.parts[0]
    assert (first.score is None) == (hole == "a/x")
    assert judged.data()["score"] is None


def trees() -> st.SearchStrategy[tuple[Node, dict[str, Result]]]:
    @st.composite
    def build(draw: st.DrawFn) -> tuple[Node, dict[str, Result]]:
        results: dict[str, Result] = {}

        def node(path: str, depth: int) -> Node | Leaf:
            if depth == 0 or (path and draw(st.booleans())):
                results[path] = score(draw(st.integers(0, 20)) / 20, draw(st.integers(1, 50)))
                return leaf(path)
            parts = tuple(node(f"{path}/{i}", depth - 1) for i in range(draw(st.integers(1, 4))))
            return Node(path, path, draw(st.sampled_from(["macro-mean", "mean-of-means", "micro"])), parts)

        top = node("", 3)
        assert isinstance(top, Node)
        return top, results

    return build()


@given(trees())
def test_any_tree_against_exact_sums(made: tuple[Node, dict[str, Result]]) -> None:
    tree, results = made

    def exact(node: Node | Leaf) -> Fraction:
        if isinstance(node, Leaf):
            result = results[node.path]
            assert isinstance(result, TaskScore)
            return Fraction(round(result.metrics["acc_raw"] * 20), 20)
        leaves = list(node.leaves())
        if node.aggregate == "mean-of-means":
            return sum((exact(part) for part in node.parts), Fraction()) / len(node.parts)
        weights = [results[each.path].tasks if node.aggregate == "micro" else 1 for each in leaves]  # type: ignore[union-attr]
        return sum((exact(each) * w for each, w in zip(leaves, weights, strict=True)), Fraction()) / sum(weights)

    def check(judged: Judged, node: Node | Leaf) -> None:
        assert judged.score == pytest.approx(float(exact(node)))
        for one, other in zip(judged.parts, node.parts if isinstance(node, Node) else (), strict=True):
            check(one, other)

    check(judge(tree, results), tree)


def test_a_task_without_its_own_metric_has_no_score_and_says_why() -> None:
    tree = Node("", "top", "mean", (leaf("a"), leaf("b", "acc_uncond")))
    judged = judge(tree, {"a": score(0.5), "b": score(0.5)})
    assert judged.score is None
    (missing,) = judged.missing()
    assert missing.absent is not None and "acc_uncond" in missing.absent.what and missing.absent.remedy

"""A gate's verdict as JUnit XML, as CI servers read it.

A regression is a ``failure``; a run that is untrusted, missing or of other questions is an ``error``, trouble of the
machinery and no regression; what could not be decided or was left out on purpose is ``skipped``, with the reason.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from llmc.judge.gate import Case, Outcome, Verdict
from llmc.report.gate import figures, headline

_ELEMENTS: dict[Outcome, str] = {
    "fail": "failure",
    "untrusted": "error",
    "missing": "error",
    "refused": "error",
    "inconclusive": "skipped",
    "skipped": "skipped",
}
# What XML 1.0 cannot hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SHOWN = (
    "difference",
    "low",
    "high",
    "margin",
    "alpha",
    "lost",
    "gained",
    "tasks",
    "p_pass_adjusted",
    "p_fail_adjusted",
)


def junit(verdict: Verdict) -> bytes:
    """Return the verdict as one test suite, UTF-8, one test case a case."""
    seconds = sum(_seconds(case) for case in verdict.cases)
    totals = {
        "tests": str(len(verdict.cases)),
        "failures": str(verdict.count("fail")),
        "errors": str(verdict.count("untrusted", "missing", "refused")),
        "skipped": str(verdict.count("inconclusive", "skipped")),
        "time": f"{seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": "llmc gate", **totals})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "llmc gate", **totals})
    properties = ElementTree.SubElement(suite, "properties")
    _property(properties, "verdict", verdict.outcome)
    _property(properties, "exit_code", str(int(verdict.exit_code)))
    for case in verdict.cases:
        _case(suite, case)
    ElementTree.SubElement(suite, "system-out").text = _clean(headline(verdict))
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _case(suite: ElementTree.Element, case: Case) -> None:
    name = _clean(f"{case.label}: {case.kind}")
    attributes = {"classname": _clean(case.benchmark), "name": name, "time": f"{_seconds(case):.3f}"}
    element = ElementTree.SubElement(suite, "testcase", attributes)
    if case.test is not None:
        properties = ElementTree.SubElement(element, "properties")
        found = figures(case.test)
        for each in _SHOWN:
            _property(properties, each, f"{found[each]:.6g}")
    kind = _ELEMENTS.get(case.outcome)
    if kind is not None:
        said = ElementTree.SubElement(element, kind, {"type": case.outcome, "message": _clean(case.reason)})
        said.text = _clean("\n".join(part for part in (case.reason, case.remedy, *case.warnings) if part))


def _seconds(case: Case) -> float:
    """What the run took; of two cases on one run only the comparison counts it."""
    return 0.0 if case.answers is None or case.kind == "floor" else case.answers.seconds or 0.0


def _property(parent: ElementTree.Element, name: str, value: str) -> None:
    ElementTree.SubElement(parent, "property", {"name": name, "value": _clean(value)})


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)

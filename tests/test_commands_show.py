"""`course show` as typed: every name is listed, with its sources, and formulas with their derivations."""

from __future__ import annotations

import re

import pytest

from course import catalog, legality
from course.cli import main
from course.commands.show import KINDS, RULES
from course.examples import names, path
from course.fields import FIELDS
from course.formulas import formulas
from course.problem import load
from course.sweep import sweep


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(list(words))
    shown = capsys.readouterr()
    assert shown.err == ""
    return code, shown.out


@pytest.mark.parametrize("kind", KINDS)
def test_show_lists_every_name(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = said(capsys, "show", kind)
    assert code == 0
    others = {"formulas": tuple(formulas()), "rejections": tuple(RULES), "fields": tuple(name for _, name in FIELDS)}
    expected = others.get(kind) or catalog.names(kind)
    listed = [line.split()[0] for line in text.splitlines() if line.split()]
    assert [name for name in expected if name not in listed] == []
    assert max(map(len, text.splitlines())) <= 100


def test_show_gives_sources_and_doubts(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("models", "accelerators", "fabrics", "states", "software"):
        for name in catalog.names(kind):
            code, text = said(capsys, "show", kind, name)
            assert code == 0
            assert max(map(len, text.splitlines())) <= 100
            one_line = " ".join(text.split())
            for row in catalog.facts(kind, name):
                for column in ("source", "doubt", "confidence"):
                    assert " ".join(row[column].split()) in one_line


def test_show_rejections_explains_every_rule_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = said(capsys, "show", "rejections")
    assert "memory" in text and "the attention heads of the model must split over the tensor ranks" in text
    assert not re.search(r"[<>{}]", text)
    assert set(RULES) == {*legality.RULES, "memory"}
    _, one = said(capsys, "show", "rejections", "rounds")
    assert one.startswith("rounds ") and "memory" not in one
    for name in names():
        assert set(sweep(load(path(name)))["rejected"]) <= set(RULES)


@pytest.mark.parametrize("name", sorted(formulas()))
def test_show_a_formula_with_its_derivation(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    formula = formulas()[name]
    code, text = said(capsys, "show", "formulas", name)
    assert code == 0
    assert max(map(len, text.splitlines())) <= 100
    one_line = " ".join(text.split())
    for part in (str(formula), formula.meaning, formula.source, *formula.assumptions):
        assert " ".join(part.split()) in one_line
    for entry in formula.inputs:
        assert f"[{entry.key}]" in text
    for step in formula.derivation:
        assert " ".join(step.text.split()) in one_line


def test_every_formula_is_found_by_its_full_name() -> None:
    assert len(formulas()) > 50
    assert len({id(formula) for formula in formulas().values()}) == len(formulas())
    for name, formula in formulas().items():
        assert name.endswith(f".{formula.name}")
    assert {name.split(".")[0] for name in formulas()} == {
        "estimate", "constrain", "shard", "place", "batch", "mfu", "overlap", "predict", "scaling",
    }  # fmt: skip

"""The questions of the course: right answers are right, known mistakes are named, none is taken for another."""

from __future__ import annotations

import csv
import math
import re
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

from course.grading import judge
from course.grading.answers import encode
from course.grading.numbers import close
from course.grading.sandbox import run
from course.questions.kinds import BugHunt, Expression, Function, Judgement, Number, Question
from course.questions.mistakes import MISTAKES, explain
from course.questions.quantities import alternatives, parse
from course.questions.registry import STEPS, default

QUESTIONS = default().all()
NUMBERS = [question for question in QUESTIONS if isinstance(question, Number)]
SEEDS = (None, *range(200))


def by_id(question: Question) -> str:
    return question.id


def of(kind: type) -> list[Question]:
    return [question for question in QUESTIONS if isinstance(question, kind)]


@pytest.mark.parametrize("question", QUESTIONS, ids=by_id)
def test_a_question_is_whole(question: Question):
    assert question.step in STEPS
    assert 10 < len(question.text()) < 900
    assert len(set(question.hints)) == 3
    assert question.source
    assert re.fullmatch(r"[a-z]+\.\d+", question.id)
    for seed in range(5):
        assert "{" not in question.text(seed).replace('{"', "")


def test_numbers_of_questions_run_from_one_without_a_gap():
    for step, questions in default().steps().items():
        assert [q.id for q in questions] == [f"{step}.{n}" for n in range(1, len(questions) + 1)]


@pytest.mark.parametrize("question", NUMBERS, ids=by_id)
def test_no_mistake_can_be_taken_for_the_answer_or_for_another(question: Number):
    for seed in SEEDS:
        given = question.numbers(seed)
        right = question.answer(given)
        assert math.isfinite(right) and (right != 0 or question.absolute)
        room = 2.2 * question.relative  # an answer and a mistake, each rounded towards the other
        wrong = [(mistake.name, float(mistake.value(given))) for mistake in question.mistakes]
        for name, value in wrong:
            assert not close(value, right, room, question.absolute), (seed, name, value, right)
        for (one, first), (two, second) in combinations(wrong, 2):
            assert not close(first, second, room, question.absolute), (seed, one, two, first, second)
        for text, unit, _ in alternatives(question.unit):
            assert not close(right * parse(question.unit).factor / unit.factor, right, room), (seed, text)


@pytest.mark.parametrize("question", NUMBERS, ids=by_id)
def test_the_right_number_is_right_and_each_mistake_is_named(question: Number):
    for seed in (None, 1, 2, 3):
        given = question.numbers(seed)
        right = question.answer(given)
        for answer in (
            right,
            f"{right!r} {question.unit if question.unit != '1' else ''}",
            np.float64(right),
            f"{right:.3g}",
        ):
            assert judge.grade(question, encode(answer), seed).status == "right", (seed, answer)
        for mistake in question.mistakes:
            for answer in (float(mistake.value(given)), f"{mistake.value(given):.4g}"):
                verdict = judge.grade(question, encode(answer), seed)
                assert (verdict.status, verdict.mistake) == ("wrong", mistake.name), (seed, answer, verdict)
        for text, unit, _ in alternatives(question.unit):
            value = right * parse(question.unit).factor / unit.factor
            assert judge.grade(question, encode(value), seed).status == "wrong", (seed, text, value)


@pytest.mark.parametrize("question", NUMBERS, ids=by_id)
def test_no_message_and_no_hint_gives_the_number_away(question: Number):
    right = question.answer(question.numbers())
    digits = f"{right:.3e}".partition("e")[0].replace(".", "").rstrip("0") or "0"
    shown = {f"{right:g}", f"{right:.3g}", f"{right:,.0f}", f"{right:.2f}"} if len(digits) > 1 else set()
    for text in (*(mistake.sentence() for mistake in question.mistakes), *question.hints):
        assert not any(re.search(rf"(?<![\d.]){re.escape(form)}(?![\d.])", text) for form in shown), (text, shown)


def test_every_mistake_has_a_line_of_its_own():
    assert len(set(MISTAKES.values())) == len(MISTAKES)
    assert all(line.endswith(".") and len(line) < 130 for line in MISTAKES.values())
    assert explain("bits for bytes")


# ---------------------------------------------------------------- the other kinds
@pytest.mark.parametrize("question", of(Expression), ids=by_id)
def test_an_expression_and_its_mistakes(question: Expression):
    target = question.answer({})
    assert judge.grade(question, encode(target)).status == "right"
    assert judge.grade(question, encode(str(getattr(target, "value_expression", target)))).status == "right"
    for mistake in question.mistakes:
        verdict = judge.grade(question, encode(mistake.value({})))
        assert (verdict.status, verdict.message) == ("wrong", mistake.sentence())


@pytest.mark.parametrize("question", of(Function), ids=by_id)
def test_a_function_and_its_mistakes(question: Function):
    def graded(function: object) -> object:
        record = run(function, judge.calls(question, 0), fork=True)  # another test may have loaded torch here
        return judge.grade(question, {"kind": "record", "nonce": 0, **record})

    assert graded(lambda *args: question.answer(**dict(zip(question.arguments, args, strict=True)))).status == "right"
    for mistake in question.mistakes:
        wrong = mistake.value({})
        verdict = graded(lambda *args, f=wrong: f(**dict(zip(question.arguments, args, strict=True))))
        assert (verdict.status, verdict.mistake) == ("wrong", mistake.name), verdict


@pytest.mark.parametrize("question", of(Judgement), ids=by_id)
def test_one_pair_of_a_judgement_is_right(question: Judgement):
    for seed in range(20):
        pairs = [(choice, reason) for choice in question.choices for reason in question.reasons]
        verdicts = {pair: judge.grade(question, encode(pair), seed) for pair in pairs}
        assert [pair for pair, verdict in verdicts.items() if verdict.status == "right"] == [
            question.answer(question.numbers(seed))
        ]
        for mistake in question.mistakes:
            choice, reason = mistake.value(question.numbers(seed))
            hit = [p for p in pairs if choice in (None, p[0]) and reason in (None, p[1])]
            assert all(verdicts[pair].status == "wrong" for pair in hit)
            assert any(verdicts[pair].message == mistake.sentence() for pair in hit)


@pytest.mark.parametrize("question", of(BugHunt), ids=by_id)
def test_versions_of_a_bug_hunt_differ(question: BugHunt):
    assert len({question.good, *(fault.source for fault in question.faults)}) == len(question.faults) + 1
    for source in (question.good, *(fault.source for fault in question.faults)):
        namespace: dict[str, object] = {}
        exec(source, namespace)
        assert callable(namespace[question.function])


def test_counts_over_all_questions(capsys: pytest.CaptureFixture[str]):
    """Right and wrong answers in varied form, over all questions; prints how many."""
    right = wrong = named = 0
    for question in QUESTIONS:
        for seed in (None, 11, 12, 13):
            given = question.numbers(seed)
            good, bad = forms(question, given)
            for answer in good:
                assert judge.grade(question, encode(answer), seed).status == "right", (question.id, seed, answer)
            for answer, mistake in bad:
                verdict = judge.grade(question, encode(answer), seed)
                assert (verdict.status, verdict.mistake) == ("wrong", mistake), (question.id, seed, answer, verdict)
            right, wrong, named = right + len(good), wrong + len(bad), named + sum(name is not None for _, name in bad)
    with capsys.disabled():
        print(
            f"\n{right} right answers accepted, {wrong} wrong ones refused, {named} of them by the name of the mistake"
        )
    assert right >= 200 and wrong >= 200


def forms(question: Question, given: dict[str, object]) -> tuple[list[object], list[tuple[object, str | None]]]:
    """Right answers in many forms, and wrong ones with the name of their mistake."""
    if isinstance(question, Number):
        value, unit = question.answer(given), question.unit if question.unit != "1" else ""
        good = [
            value,
            float(f"{value:.3g}"),
            f"{value:.6g} {unit}",
            f" ~{value:.4e}{unit} ",
            np.float64(value),
            sp.Float(value),
        ]
        good += [np.array(value), Fraction(value), Decimal(repr(value))]
        good += [value * (1 + 0.8 * side * question.relative) for side in (1, -1)]
        bad = [(float(m.value(given)), m.name) for m in question.mistakes]
        bad += [(f"{float(m.value(given)):.5g} {unit}", m.name) for m in question.mistakes]
        wild = [value * factor for factor in (1.1234, 17.3, 1.47, 31.7)]  # no factor between two units
        # an answer that no known mistake explains: far from each of them
        known = [wrong for wrong, _ in bad if isinstance(wrong, float) and wrong]
        wild = [x for x in wild if all(abs(x / wrong - 1) > 0.1 for wrong in known)]
        assert len(wild) >= 2, question.id
        return good, [*bad, *((x, None) for x in wild)]
    if isinstance(question, Expression):
        target = sp.sympify(getattr(question.answer(given), "value_expression", question.answer(given)))
        good = [target, str(target), str(sp.expand(target * 7) / 7), str(sp.factor(target)), f"F = {sp.expand(target)}"]
        unknown = [(target * sp.Rational(17, 5), None), (target + 1, None)]
        return good, [*((m.value(given), m.name) for m in question.mistakes), *unknown]
    if isinstance(question, Judgement):
        choice, reason = question.answer(given)
        others = [c for c in question.choices if c != choice]
        known = [pair for m in question.mistakes if None not in (pair := m.value(given)) and pair != (choice, reason)]
        names = [m.name for m in question.mistakes if m.value(given) in known]
        assert others
        return [(choice, reason), f"{choice}{reason}", f"{choice}, {reason}", [choice, int(reason)]], list(
            zip(known, names, strict=True)
        )
    return [], []


# ---------------------------------------------------------------- step 1 by independent answers
def answer(name: str) -> float:
    question = default().get(name)
    assert isinstance(question, Number)
    return question.answer(question.numbers())


def test_step_one_by_hand():
    assert answer("estimate.1") == pytest.approx(6 * 70e9 * 15e12)
    assert answer("estimate.2") == pytest.approx(2 * 8192 * 4096 * 14336 / 1e12)
    assert answer("estimate.3") == 1000  # the cap of the second source document, not 1600
    assert answer("estimate.4") == pytest.approx(1 / 6)  # ROF-05
    assert answer("estimate.5") == pytest.approx(1979 / 2 / 3.35, rel=1e-3)
    assert answer("estimate.8") == pytest.approx(0.4042446, rel=5e-3)  # MFU-01
    assert answer("estimate.9") == pytest.approx(8 * 18)  # MEM-01: 18 bytes a parameter
    assert answer("estimate.12") == pytest.approx(8192 * 128256 * 14 / 2**30)
    # 32 layers of (4 x 4096 + 2 x 4096 + 2 x 1024 + 3 x 14336) numbers of 2 bytes for each of 8192 tokens
    assert answer("estimate.13") == pytest.approx(32 * (4 * 4096 + 2 * 4096 + 2 * 1024 + 3 * 14336) * 2 * 8192 / 2**30)
    # 405.85e9 parameters, 15.6e12 tokens, 400 TFLOP/s
    assert answer("estimate.19") == pytest.approx(6 * 405853388800 * 15.6e12 / 400e12 / 3600, rel=1e-6)
    matmul = 126 * (2 * 16384**2 + 2 * 16384 * 1024 + 3 * 16384 * 53248) + 16384 * 128256
    full = 6 * matmul + 12 * 126 * 16384 * 8192
    assert answer("estimate.20") == pytest.approx(full * 15.6e12 / 400e12 / 3600 / 30.84e6, rel=1e-6)


def test_published_cases_come_out():
    ratio = default().get("estimate.18")
    given = {"hidden": 4608, "heads": 36, "kv": 36, "ffn": 4 * 4608}
    assert ratio.answer(given) == pytest.approx(36864)  # MFU-45
    state = default().get("estimate.9")
    assert state.answer({"billions": 1.0}) == 18.0  # MEM-01


@pytest.mark.parametrize("step", default().steps())
def test_a_step_asks_enough_and_stands_on_real_confusions(step: str, root: Path):
    table = (root / "tests" / "data" / "cases.csv").read_text(encoding="utf-8")
    known = {row["id"] for row in csv.DictReader(table.splitlines())}
    questions = default().steps()[step]
    assert len(questions) >= 12
    assert len({question.kind for question in questions}) >= 4
    least = 1 if step == "estimate" else 3  # counting leaves few faults to plant
    assert sum(question.kind == "bug hunt" for question in questions) >= least
    cited = {question.id: re.findall(r"\b[A-Z]{3}-\d\d\b", question.source) for question in questions}
    assert {case for cases in cited.values() for case in cases} <= known
    assert len({case for cases in cited.values() for case in cases}) >= 8

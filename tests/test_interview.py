"""The mock interview: questions that can be answered, a reference that is right, mistakes marked where they arise."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter

import pytest
from planted import TABLE, count

from course import catalog
from course.interview import SHEET, TWISTS, generate, grade, reference, study
from course.interview.judge import Result
from course.interview.marks import Mark
from course.interview.session import start
from course.interview.sheet import empty
from course.interview.statements import STATEMENTS
from course.interview.text import verdict
from course.predict import predict

SEEDS = range(40)
"""A slice of the three hundred that `benchmarks/interview.py` asks."""


def mistakes(result: Result) -> dict[str, tuple[str, ...]]:
    """Step -> its mistakes, where it has any."""
    return {step.name: step.mistakes for step in result.steps if step.mistakes}


def test_a_seed_asks_one_question_and_seeds_ask_different_ones():
    assert generate(5) == generate(5)
    asked = [generate(seed) for seed in SEEDS]
    assert len({prompt.opening for prompt in asked}) > 35
    assert {prompt.twist for prompt in asked} == set(TWISTS) and {prompt.level for prompt in asked} == {1, 2, 3}


def test_every_interview_can_be_answered_and_the_reference_has_full_marks(capsys: pytest.CaptureFixture[str]):
    impossible = Counter[str]()
    for seed in SEEDS:
        prompt = generate(seed)
        run, known, sheet = prompt.run, study(prompt), reference(prompt)
        result = grade(prompt, sheet, prompt.withheld)
        assert result.score == 1.0 and not mistakes(result), (seed, mistakes(result))
        whole = run.cluster.devices * run.cluster.accelerator.memory_bytes
        if not known.feasible:
            impossible["nothing fits"] += 1
            assert 18 * sheet["estimate"]["parameters"] > whole  # not even the state alone, shared by all
            assert sheet["shard"]["feasible"] == "no"
            continue
        found = predict(type(run)(**{**vars(run), "layout": known.best}))
        assert found["legal"] and found["memory"]["fits"]
        assert known.best.devices == run.cluster.devices
        days = sheet["estimate"]["flops"] / 2 / (run.cluster.devices * run.cluster.accelerator.peak_flops_per_s) / 86400
        assert sheet["mfu"]["days"] > days  # half the FLOPs at full peak
        impossible["goal"] += sheet["mfu"]["verdict"] == "impossible"
    with capsys.disabled():
        print(f"\n{len(SEEDS)} interviews, the reference right in all; cannot be done: {dict(impossible)}")
    assert impossible["nothing fits"] and impossible["goal"]


def test_planted_mistakes_are_marked_at_their_step_and_nowhere_else(capsys: pytest.CaptureFixture[str]):
    counts = count(SEEDS, share=0.1)
    with capsys.disabled():
        print("\n" + counts.lines()[-1])
    assert counts.caught >= 0.95 and counts.quiet >= 0.95, counts.examples[:5]


def test_the_table_of_mistakes_covers_the_steps():
    assert {row["step"] for row in TABLE} == {step.name for step in SHEET}
    assert len({row["kind"] for row in TABLE}) == len(TABLE) >= 25


def test_a_grade_takes_less_than_two_seconds():
    prompt = generate(24)
    sheet = reference(prompt)
    study.cache_clear()
    before = time.perf_counter()
    grade(prompt, sheet, prompt.withheld)
    assert time.perf_counter() - before < 2.0


def test_reasons_weigh_more_than_numbers():
    for step in SHEET:
        weight = Counter[str]()
        for field in step.fields:
            weight[field.group] += field.weight  # type: ignore[assignment]
        assert weight["reason"] > weight["number"], step.name


def test_every_step_offers_sound_reasons_and_known_mistakes():
    for step, statements in STATEMENTS.items():
        assert sum(not one.mistake for one in statements) >= 2 and sum(bool(one.mistake) for one in statements) >= 2, (
            step
        )
        assert len({one.key for one in statements}) == len(statements)


# ---------------------------------------------------------------- whatever is written
ODD = (None, "", "x", "none", True, -1, 0, 1, 3, 7, 8, 64, 10**9, 10**400, 0.0, 0.125, 1e-9, 1e300, float("nan"),
       float("inf"), (), ("tensor",), ("data", "data"), [None, 3], {}, {"tensor": "hidden"}, {"tensor": [0, 10**9]},
       {"odd": [2], "sharding": ["zero9"], "micro_batch": [1.5, None]}, {"data": None})  # fmt: skip
"""Values nobody should write, beside some that somebody might."""


def test_no_sheet_raises_whatever_stands_in_it():
    """Reference sheets with blanks emptied or overwritten, by odd values and by those of other blanks."""
    draw, judged = random.Random(8), 0
    for seed in (2, 4, 7, 11, 13, 21, 40):
        prompt = generate(seed)
        right = reference(prompt, whole=True)
        usual = [value for fields in right.values() for value in fields.values()]
        for _ in range(12):
            sheet: dict[str, dict[str, object]] = {
                name: {field: draw.choice((*ODD, *usual)) if draw.random() < 0.3 else value
                       for field, value in fields.items()} for name, fields in right.items()
            }  # fmt: skip
            result = grade(prompt, sheet, draw.choice(((), ("deadline", "nonsense"))))
            assert 0 <= result.score <= 1 and result.word and result.weakest
            unjudged = [mark.message for step in result.steps for mark in step.marks if mark.name == "not judged"]
            assert not unjudged, (seed, unjudged)
            judged += 1
    assert judged == 84
    assert grade(generate(7), {"estimate": None, "shard": [1]}).score == 0  # type: ignore[dict-item]


def test_every_small_layout_of_experts_is_judged_and_its_verdict_printed():
    """Tensor, expert ranks and cut experts in every combination, legal or not, the last of them left blank too."""
    session = start(40)
    session.answers = {**empty(), **reference(session.prompt)}
    for tensor, expert, cut in itertools.product((1, 8), (1, 8), (None, 1)):
        session.answers["shard"] |= {"tensor": tensor, "expert": expert, "expert_tensor": cut, "context": 1}
        result = session.grade()
        assert not [mark for step in result.steps for mark in step.marks if mark.name == "not judged"]
        if cut is None and tensor == expert == 8:
            assert "SCORE" in verdict(session, result)


def test_a_step_that_cannot_be_judged_says_so_and_the_others_are_judged(monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> list[Mark]:
        raise ZeroDivisionError("float division by zero")

    prompt = generate(7)
    monkeypatch.setattr("course.interview.judge_layout.place", fails)
    result = grade(prompt, reference(prompt), prompt.withheld)
    place = next(step for step in result.steps if step.name == "place")
    assert "could not judge" in place.marks[0].message and result.score == 1 and result.weakest.name != "place"


def test_a_plan_leaves_a_tenth_of_the_memory():
    for seed in SEEDS[::4]:
        known = study(generate(seed))
        if known.feasible and (known.found.values["peak_bytes"] < 0.9 * known.capacity).any():
            assert known.predicted(known.best)["memory"]["peak_gib"] * 2**30 <= 0.9 * known.capacity


def test_a_claim_is_usual_and_not_the_highest():
    """Medians of the records: dense runs on GPUs 0.4 to 0.45, mixtures below 0.4."""
    for seed in SEEDS[::4]:
        known = study(generate(seed))
        if known.feasible:
            share, days, _ = known.claim(known.best)
            assert share <= (0.4 if known.run.model.experts else 0.45)
            assert days >= known.predicted(known.best)["run"]["days"]


def test_what_follows_from_a_wrong_number_is_told_and_not_marked():
    prompt = generate(2)
    sheet = reference(prompt)
    sheet["estimate"]["peak"] *= 2
    sheet["mfu"] |= {name: sheet["mfu"][name] / 2 for name in ("days", "hours")}
    step = grade(prompt, sheet, prompt.withheld).steps[5]
    assert not step.mistakes and any("days follow from your" in mark.message for mark in step.marks)


# ---------------------------------------------------------------- twists
def test_what_is_withheld_is_said_only_to_those_who_ask():
    prompt = generate(1, level=3, twist="under-specified")
    assert prompt.withheld == ("precision", "sequence", "deadline")
    said = " ".join([prompt.opening, *prompt.said()])
    assert f"{prompt.run.training.sequence_length:,}" not in said and "bf16;" not in said and "days" not in said
    assert "days" in " ".join(prompt.said(("deadline",))) and "Adam" in prompt.reply("precision")
    silent = grade(prompt, reference(prompt), ("sequence",))
    assert mistakes(silent) == {"estimate": ("not asked",)} and silent.steps[0].score < 0.85


def test_a_wrong_premise_is_wrong_and_is_to_be_doubted():
    for seed in (2, 5, 20, 28, 34, 35):
        prompt = generate(seed, twist="wrong premise")
        assert prompt.claim and dict(prompt.lines)["claim"] in prompt.said()
        sheet = reference(prompt)
        sheet["estimate"]["doubt"] = "nothing"
        assert mistakes(grade(prompt, sheet)) == {"estimate": ("premise accepted",)}


def test_a_slow_fabric_is_slower_and_half_the_memory_is_half():
    slow = generate(0, twist="slow fabric").run.cluster
    usual = catalog.fabric(next(n for n in catalog.fabrics_for(slow.accelerator.id))).scale_out_bytes_per_s
    assert slow.fabric.scale_out_bytes_per_s <= usual / 3
    half = generate(3, twist="half the memory").run.cluster.accelerator
    assert half.memory_bytes == catalog.accelerator(half.id).memory_bytes / 2
    assert generate(2, twist="experts").run.model.experts
    assert generate(2, twist="long context").run.training.sequence_length >= 32768


# ---------------------------------------------------------------- justice
def test_an_empty_sheet_is_marked_and_raises_nothing():
    result = grade(generate(7), empty())
    assert result.score == 0 and result.word == "weak"
    assert (
        grade(generate(7), {"estimate": {"parameters": "many", "flops": float("nan")}, "shard": {"tensor": -3}}).score
        < 0.1
    )


def test_a_napkin_is_enough():
    """Rounded to two digits, with 6PS and a usual MFU where the model says more."""
    for seed in (7, 9, 11):
        prompt = generate(seed)
        sheet = reference(prompt)
        for step in ("estimate", "mfu", "place"):
            for name, value in sheet[step].items():
                if isinstance(value, float) and value > 0:
                    sheet[step][name] = float(f"{value:.2g}")
        assert not mistakes(grade(prompt, sheet, prompt.withheld))


def test_who_gives_up_where_a_layout_fits_is_told_once():
    prompt = generate(7)
    sheet = reference(prompt)
    sheet["shard"] = {"feasible": "no", "why_shard": sheet["shard"]["why_shard"]}
    result = grade(prompt, sheet, prompt.withheld)
    assert mistakes(result) == {"shard": ("given up early",)} and result.score < 0.5


def test_a_claim_above_all_published_runs_is_marked_though_the_model_says_so():
    prompt = generate(2)
    known, sheet = study(prompt), reference(prompt)
    predicted = 100 * known.predicted(known.best)["mfu"]["full_attention"]
    assert sheet["mfu"]["mfu"] < predicted  # the reference claims no more than was published
    sheet["mfu"]["mfu"] = predicted
    found = mistakes(grade(prompt, sheet))
    assert set(found) == {"mfu"} and "above all published" in found["mfu"]


@pytest.mark.parametrize("seed", [0, 11])
def test_a_layout_is_judged_in_time_and_in_hours(seed: int):
    prompt = generate(seed)
    sheet = reference(prompt)
    sheet["shard"] |= {"tensor": 1, "pipeline": 1, "context": 1, "sharding": "zero3", "recompute": "full"}
    marks = {mark.name: mark for mark in grade(prompt, sheet).steps[2].marks}
    if marks["fits"].credit and marks["near"].credit < 1:
        assert "accelerator-hours more" in marks["near"].message
    sheet["shard"] |= {"sharding": "none", "recompute": "none"}
    marks = {mark.name: mark for mark in grade(prompt, sheet).steps[2].marks}
    assert marks["fits"].mistake == "does not fit" and "GiB" in marks["fits"].message

"""Questions that people really asked: our answer, and not the mistake that was made there.

`data/cases.csv` holds the facts of each row: what is given, the right answer, the known wrong ones, and the thread it
comes from. A row whose chapter has not come yet has its name alone and stands in NOT_YET.
"""

from __future__ import annotations

import json
import math
from typing import Any

import cases
import pytest
from cases.book import CASES, ROWS, TRAPS

assert cases.__all__  # importing them fills the book

NOT_YET = {
    "MEM-23": "what an allocator wastes is measured, not derived",
    "LAY-03": "copies of key/value heads come with the accuracy of predictions",
    "LAY-11": "another program's rule for rounds of an interleaved schedule",
    "SCA-09": "a verdict on efficiencies above 1 comes with scaling experiments",
    "SCA-13": "ranks of different speed",
    "SCA-19": "pieces of a sequence in order, of which the last has most work: ours are always the balanced ones",
    "PIP-05": "zero-bubble schedules",
    **{f"NB-{number:02}": "checks of notebooks come with grading" for number in range(1, 20, 2)},
}

LEFT_OUT = {
    "MFU-33": ("note",),
    "LAY-07": ("built", "lost"),  # what a faulty program did; ours loses none, see below
    "LAY-09": ("lost",),
    "LAY-21": ("warn",),
    "ROF-05": ("intensity",),
}
"""Parts of an answer that no formula of the course gives yet, or that describe the fault and not the right answer."""


def _tolerance(row: dict[str, str]) -> float:
    kind, _, share = row["tolerance"].partition(" ")
    return float(share.split("%")[0]) / 100 if kind == "rel" else 1e-6


def _is(ours: Any, theirs: Any, tolerance: float) -> bool:
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(_is(x, y, tolerance) for x, y in zip(ours, theirs, strict=True))
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(_is(ours[key], theirs[key], tolerance) for key in theirs)
    if ours is None or isinstance(ours, bool | str) or isinstance(theirs, bool | str):
        return bool(ours == theirs)
    return math.isclose(ours, theirs, rel_tol=tolerance, abs_tol=0.05 if theirs == 0 else 0.0)


def test_every_row_is_answered_or_waits_for_its_chapter():
    assert set(CASES) | set(NOT_YET) == set(ROWS)
    assert not set(CASES) & set(NOT_YET)


@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_right_and_not_the_known_mistake(name):
    row, tolerance = ROWS[name], _tolerance(ROWS[name])
    ours = CASES[name](json.loads(row["input_json"]))
    answers, traps = json.loads(row["answer_json"]), json.loads(row["trap_values_json"])
    wanted = {key: value for key, value in answers.items() if key not in LEFT_OUT.get(name, ())}
    assert ours.keys() == wanted.keys()
    for key, value in wanted.items():
        assert _is(ours[key], value, tolerance), f"{name} {key}: ours {ours[key]}, theirs {value}"
    for trap, value in traps.items():
        key = TRAPS[name].get(trap, trap)
        if key == "not one of ours":
            continue
        assert not _is(ours[key], value, tolerance), f"{name} {key}: we make the mistake {trap}"

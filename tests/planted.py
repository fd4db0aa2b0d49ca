"""Mistakes planted one at a time into the reference sheet of an interview, and counted by kind.

The table, `data/interview_mistakes.csv`, writes wrong answers as values over plain facts of the
question; nothing of it comes from the grader.
"""

from __future__ import annotations

import copy
import csv
import math
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course.interview import generate, grade, reference, study

TABLE = list(
    csv.DictReader((Path(__file__).parent / "data" / "interview_mistakes.csv").read_text(encoding="utf-8").splitlines())
)
AXES = ("tensor", "context", "expert", "pipeline", "data")


@dataclass
class Counts:
    """What became of planted mistakes, by kind."""

    asked: Counter[str] = field(default_factory=Counter)
    flagged: Counter[str] = field(default_factory=Counter)
    others: Counter[str] = field(default_factory=Counter)
    others_unmarked: Counter[str] = field(default_factory=Counter)
    examples: list[tuple[Any, ...]] = field(default_factory=list)

    def lines(self) -> list[str]:
        """One line a kind, and the totals."""
        out = [f"{kind:30} {self.flagged[kind]:4}/{self.asked[kind]:<4} flagged, other steps unmarked "
               f"{self.others_unmarked[kind]:5}/{self.others[kind]}" for kind in self.asked]  # fmt: skip
        return [*out, f"{len(self.asked)} kinds: {self.caught:.1%} flagged at their step, {self.quiet:.1%} of other "
                "steps unmarked"]  # fmt: skip

    @property
    def caught(self) -> float:
        """Share of planted mistakes flagged at their step."""
        return sum(self.flagged.values()) / sum(self.asked.values())

    @property
    def quiet(self) -> float:
        """Share of other steps without a mark."""
        return sum(self.others_unmarked.values()) / sum(self.others.values())


def facts(prompt: Any, sheet: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Plain facts of a question and its reference sheet by name, for the expressions of the table."""
    run, known = prompt.run, study(prompt)
    cluster, fabric = run.cluster, run.cluster.fabric
    names = {f"{step}_{name}": value for step, fields in sheet.items() for name, value in fields.items()}
    P, days = sheet["estimate"]["parameters"], sheet["mfu"].get("days") or 0.0
    hfu = mfu = 0.0
    step = None
    if known.feasible:
        found = known.predicted(known.best)
        hfu, mfu, step = 100 * found["hfu"], sheet["mfu"]["mfu"], found["step"]
    goal = run.goal

    def judged(wall: float) -> str:
        budget = goal.budget_accelerator_hours or math.inf
        if sheet["mfu"].get("verdict") == "impossible":
            return "impossible"
        return "met" if wall <= (goal.days or math.inf) and wall * 24 * cluster.devices <= budget else "missed"

    def exposed(axis: str) -> float:
        part = step["communication"][axis]
        return part["exposed_s"] / part["total_s"] if part["total_s"] > 0.02 * step["time_s"] else -1.0

    def shown(axis: str) -> float:
        return (step["communication"][axis]["exposed_s"] or 0.0) / step["time_s"]

    def with_axis(axis: str) -> dict[str, str]:
        return {**sheet["overlap"]["fates"], axis: "exposed"}

    return {
        **names, "P": P, "A": known.parameters["active"], "S": run.training.tokens, "T": run.training.sequence_length,
        "L": run.model.layers, "peak": cluster.accelerator.peak_flops_per_s / 1e12, "devices": cluster.devices,
        "capacity": cluster.accelerator.memory_bytes / 2**30, "capacity_bytes": cluster.accelerator.memory_bytes,
        "goodput": cluster.goodput, "node": fabric.node_size, "up_gb": fabric.scale_up_bytes_per_s / 1e9,
        "out_gb": fabric.scale_out_bytes_per_s / 1e9, "batch": run.training.global_batch_sequences,
        "flops": sheet["estimate"]["flops"], "flops_causal": known.flops["causal_attention"],
        "flops_palm": known.flops["palm"], "activations": sheet["estimate"]["activations"], "days": days,
        "hours": sheet["mfu"].get("hours"), "mfu": mfu, "hfu": hfu, "feasible": known.feasible,
        "state_over": 18 * P / cluster.accelerator.memory_bytes, "claim": prompt.claim, "withheld": prompt.withheld,
        "impossible": sheet["estimate"]["doubt"] == "deadline", "halved": prompt.twist == "half the memory",
        "idle_over_work": 100 * (names.get("shard_pipeline", 1) or 1) and 100 * ((names.get("shard_pipeline") or 1) - 1)
        / ((names.get("batch_interleave") or 1) * (names.get("batch_accumulation") or 1)),
        "some_exposed": step and any(shown(axis) > 0.06 for axis in AXES),
        "some_hidden": step and any(0 <= exposed(axis) < 0.3 for axis in AXES),
        "judged": judged, "up": math.ceil, "near": lambda share: share > 31, "with_axis": with_axis,
        "every": lambda fate: {axis: fate if step["communication"][axis]["total_s"] else "none" for axis in AXES},
        "abs": abs,
    }  # fmt: skip


def plant(sheet: dict[str, dict[str, Any]], written: str, names: dict[str, Any], asked: tuple[str, ...]) -> Any:
    """A copy of a sheet with the values of the table, and what was then asked."""
    wrong = copy.deepcopy(sheet)
    for one in written.split(";") if written.strip() else ():
        place, _, expression = one.partition("=")
        value = eval(expression.strip(), {"__builtins__": {}}, names)  # the table is ours
        if place.strip() == "asked":
            asked = value
        else:
            step, _, name = place.strip().partition(".")
            wrong[step][name] = value
    return wrong, asked


def count(seeds: range, share: float = 1.0, carried: bool = True, into: Counts | None = None) -> Counts:
    """Plant every kind into every interview it applies to, or into a share of them.

    Each is planted alone, and again with the numbers that follow from it carried forward.
    """
    counts = Counts() if into is None else into
    for seed in seeds:
        draw = random.Random(seed)
        prompt = generate(seed)
        sheet = reference(prompt)
        names = facts(prompt, sheet)
        for row in TABLE:
            step, _, name = row["values"].partition(" = ")[0].partition(".")
            if name and name not in sheet[step]:  # not asked for in this interview
                continue
            if draw.random() >= share or (row["when"] and not eval(row["when"], {"__builtins__": {}}, names)):
                continue
            forms = [row["values"]]
            if row["carried"] and carried and ((row["step"] in ("estimate", "constrain", "shard", "batch") and
                                               (names["feasible"] or "mfu." not in row["carried"])) or
                                               row["step"] == "mfu"):  # fmt: skip
                forms.append(f"{row['values']}; {row['carried']}")
            for form in forms:
                wrong, asked = plant(sheet, form, names, prompt.withheld)
                _count(counts, row, prompt, wrong, asked)
    return counts


def _count(counts: Counts, row: dict[str, str], prompt: Any, wrong: Any, asked: tuple[str, ...]) -> None:
    kind, result = row["kind"], grade(prompt, wrong, asked)
    marked = {step.name for step in result.steps if step.mistakes}
    counts.asked[kind] += 1
    counts.flagged[kind] += row["step"] in marked
    reached = [step.name for step in result.steps if step.reached and step.name != row["step"]]
    counts.others[kind] += len(reached)
    counts.others_unmarked[kind] += len([name for name in reached if name not in marked])
    if row["step"] not in marked or marked - {row["step"]}:
        about = [(m.step, m.name, m.mistake, m.message) for s in result.steps for m in s.marks if m.mistake]
        counts.examples.append((prompt.seed, kind, about))

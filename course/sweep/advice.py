"""What to change where a sweep finds nothing: the constraint that took the last candidate, and the way past it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from course.errors import UserError
from course.formula import FormulaError
from course.legality import reasons, violations
from course.predict.columns import Columns
from course.predict.constants import constants_for
from course.predict.memory import PARTS
from course.problem import Run
from course.stops import Point
from course.sweep.placement import ORDERS, evaluate_placed
from course.sweep.search import Search, search

GIB = 2.0**30

CHANGES = {
    "devices": "choose degrees whose product divides the {devices:,} devices, or another number of devices",
    "batch": "a global batch that is a multiple of {share:,} passes, such as global_batch_sequences = {next:,}",
    "heads": "choose a tensor degree that divides the {heads} heads",
    "kv_heads": "choose a tensor degree that divides the {kv_heads} key/value heads, or a recipe that copies them",
    "ffn": "choose a tensor degree that divides the feed-forward width of {ffn:,}",
    "shared_ffn": "choose a tensor degree that divides the width of the shared experts",
    "sequence": "choose sequence_length as a multiple of tensor x context, or hold sequence_parallel = false",
    "context": "choose sequence_length as a multiple of 2 x context, or fewer context ranks",
    "no_experts": "leave expert and expert_tensor at 1: the model has no experts",
    "experts": "choose an expert degree that divides the {experts} experts",
    "expert_ffn": "choose an expert_tensor degree that divides the expert width",
    "expert_fold": "choose expert x expert_tensor so that it divides tensor x context x data",
    "expert_tokens": "turn sequence_parallel on where tensor and expert ranks meet",
    "layers": "choose pipeline x interleave so that it divides the {layers} layers or {layers} + 2; devices with other "
    "divisors, or more data-parallel ranks by a larger global batch, leave more to choose from",
    "stage_layers": "leave stage_layers out: the recipe spreads the layers",
    "interleave": "hold schedule = interleaved with interleave above 1 and pipeline above 1, or neither",
    "rounds": "more micro-batches help: a smaller micro_batch, fewer data ranks or a larger global batch, so that they "
    "are a multiple of pipeline",
    "few_micro_batches": "more micro-batches help: a smaller micro_batch, fewer data ranks or a larger global batch",
    "split_backward": "hold pipeline above 1 with schedule = zero-bubble, or leave schedule out",
    "shard_group": "choose a shard_group that divides data x context",
    "sequence_parallel": "leave sequence_parallel out: with one tensor rank there is nothing to share",
}
"""Rule -> the change that lets a candidate pass it."""


def advice(run: Run, found: Search, fix: Iterable[str] = (), counts: Sequence[Point] = ()) -> list[str]:
    """Sentences for a search that found nothing: what removed the last candidate, what would help.

    Args:
        run: the question.
        found: its search; where a layout is left there is nothing to say.
        fix: the fields that were held.
        counts: the best of other device counts, as `course.sweep.across_devices` gives them.
    """
    code, witness = found.last_constraint, found.witness
    if code is None:
        return []
    said = [f"The last constraint was `{code}`."]
    free = dataclasses.replace(run, layout=None)
    if witness is not None:
        said += _memory(free, witness) if code == "memory" else _rule(free, witness, code)
    said += _released(run, tuple(fix))
    more = [point.devices for point in counts if point.devices > run.cluster.devices]
    if more:
        said.append(f"On {more[0]:,} devices layouts are left: devices = {more[0]}.")
    elif code == "memory":
        said.append("Fewer bytes a parameter (training.state), a shorter sequence or devices with more memory help.")
    return said


def _memory(run: Run, witness: Columns) -> list[str]:
    """The smallest legal layout, what it needs, and what takes most of it."""
    placed = witness if "order" in witness else witness | {"order": 0 * witness["data"] + _usual(run)}
    values = evaluate_placed(run, placed, constants_for(run))
    need, have = float(values["peak_bytes"][0]), run.cluster.accelerator.memory_bytes
    parts = sorted(PARTS, key=lambda name: -float(values[f"part_{name}"][0]))[:2]
    shares = " and ".join(f"{float(values[f'part_{name}'][0]) / GIB:.1f} GiB of {name}" for name in parts)
    axes = ", ".join(
        f"{name} {int(witness[name][0])}"
        for name in ("data", "tensor", "pipeline", "context", "expert")
        if witness[name][0] > 1
    )
    return [
        f"The smallest legal layout ({axes or 'nothing split'}) needs {need / GIB:,.1f} of {have / GIB:,.1f} GiB, "
        f"{shares} among them."
    ]


def _usual(run: Run) -> int:
    return ORDERS.index(tuple(run.software.order))


def _rule(run: Run, witness: Columns, code: str) -> list[str]:
    """One candidate and the rule it breaks, then the change."""
    share = int(witness["data"][0] * witness["micro_batch"][0])
    batch = run.training.global_batch_sequences
    names = {
        "devices": run.cluster.devices, "share": share, "next": share * math.ceil(batch / share),
        "heads": run.model.heads, "kv_heads": run.model.kv_heads, "ffn": run.model.ffn, "layers": run.model.layers,
        "experts": run.model.experts,
    }  # fmt: skip
    said = []
    words = _reason(run, witness, code)
    if words:
        said.append(f"For instance {words}.")
    if code in CHANGES:
        change = CHANGES[code].format(**names)
        said.append(f"{change[:1].upper()}{change[1:]}.")
    return said


def _reason(run: Run, witness: Columns, code: str) -> str:
    """The sentence of one rule for one row."""
    broken = [name for name, column in violations(run, witness).items() if column.any()]
    sentences = dict(zip(broken, reasons(run, witness), strict=True))
    return sentences.get(code, "")


def _released(run: Run, fix: tuple[str, ...]) -> list[str]:
    """The held field without which layouts are left."""
    for name in fix:
        others = tuple(other for other in fix if other != name)
        try:
            left = search(run, others).fitting
        except (UserError, FormulaError):
            continue
        if left:
            return [f"Without --fix {name} {left:,} layouts are left."]
    return []

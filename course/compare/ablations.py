"""What each term of the prediction buys on the playbook's competitive rows: one taken away at a time.

`ablations()` gives the table as data: `python -m course.compare.ablations` prints it. The constants are the catalog's,
so all lines are in-sample for those that the playbook calibrated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from course.compare.gates import error
from course.compare.playbook import Panels, panels, ranking
from course.compare.trials import Trial
from course.problem import Run

__all__ = ["Ablation", "ablations"]


@dataclass(frozen=True)
class Ablation:
    """One term removed: errors in per cent, Spearman's rank correlation, mean regret in per cent."""

    removed: str
    median: float
    p90: float
    spearman: float
    regret: float


def _asked(rows: Trial, change: Callable[[Run], Run]) -> Trial:
    return replace(
        rows, questions=tuple((change(run), columns, order, place) for run, columns, order, place in rows.questions)
    )


def _software(**fields: object) -> Callable[[Run], Run]:
    return lambda run: replace(run, software=replace(run.software, **fields))  # type: ignore[arg-type]


def _fabric(**fields: object) -> Callable[[Run], Run]:
    return lambda run: replace(run, cluster=replace(run.cluster, fabric=replace(run.cluster.fabric, **fields)))  # type: ignore[arg-type]


_LOST: tuple[tuple[str, Callable[[Run], Run], dict[str, float]], ...] = (
    ("nothing", lambda run: run, {}),
    ("stages cut by cost: layers spread evenly", _software(stage_rule="even"), {}),
    ("host time a layer", lambda run: run, {
        "host_forward_s": 0.0, "host_backward_s": 0.0, "host_tensor_s": 0.0, "host_pipeline_s": 0.0,
        "host_pipeline_rank_s": 0.0,
    }),
    ("host floor of pipelines over nodes", lambda run: run, {"host_pipeline_s": 0.0, "host_pipeline_rank_s": 0.0}),
    ("bytes of eager operations", _software(eager_kernels=False), {}),
    ("tensor traffic beside backward's gradients", _software(overlap_tensor_backward=False), {}),
    ("start of a collective", lambda run: run, {"collective_s": 0.0}),
    ("bus bandwidth by ring length: .8 of the wire", _fabric(reduce_bus_by_nodes=(), gather_bus_by_nodes=()), {}),
    ("hops of a bucket", lambda run: run, {"hop_s": 0.0, "hop_across_s": 0.0}),
    ("ZeRO-1 exposed: overlapped instead", _software(overlap_gradients=True), {}),
    ("attention's own share: that of matmuls", lambda run: run, {"attention_share": 0.6}),
)  # fmt: skip


def ablations() -> tuple[Ablation, ...]:
    """The table, the whole prediction first."""
    one: Panels = panels()
    scored = one.competitive & (one.devices <= 256)
    found = []
    for name, change, constants in _LOST:
        times = _asked(one.trial, change).predict(constants)["time_s"]
        rows = scored & np.isfinite(times)
        errors = error(one.trial.time_s, times)[rows]
        order = ranking(times, one.trial.time_s, one.groups(rows))
        figures = float(np.median(errors)), float(np.quantile(errors, 0.9))
        found.append(Ablation(name, *figures, order["spearman_median"], 100 * order["regret_mean"]))
    return tuple(found)


if __name__ == "__main__":
    print(f"{'removed':50} {'median':>7} {'P90':>7} {'Spearman':>9} {'regret':>7}")
    for line in ablations():
        print(f"{line.removed:50} {line.median:7.1f} {line.p90:7.1f} {line.spearman:9.2f} {line.regret:7.1f}")

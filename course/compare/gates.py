"""How good the predictions are, gate by gate, beside two baselines; `python -m course.compare.gates` prints it.

Constants that training runs calibrated are chosen again from a coarse grid without the panel, model or source that is
scored; what a benchmark measured stays. The first baseline gives every run one utilisation, found without the rows
scored, and the pipeline's idle time; the second picks a layout at random.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from course.batch import bubble_overhead
from course.compare.playbook import Panels, first_rows, panels, random_ranking, ranking
from course.compare.trials import Trial, candidates, trial
from course.estimate import flops_per_token
from course.records.columns import Row

__all__ = ["Figure", "Gate", "gates", "table"]

GRIDS: dict[str, dict[str, tuple[float, ...]]] = {
    "nanotron-2025": {
        "matmul_share": (0.57, 0.6, 0.63), "attention_share": (0.15, 0.18, 0.22), "host_backward_s": (0.0015, 0.0018),
    },
    "torch-fsdp a100": {"matmul_share": (0.74, 0.78, 0.82), "attention_share": (0.3, 0.34)},
    "torch-fsdp h100": {"matmul_share": (0.58, 0.62, 0.66), "attention_share": (0.18, 0.22)},
    "megatron-2021": {"matmul_share": (0.66, 0.7, 0.74), "memory_share": (0.75, 0.92)},
    "megatron": {"matmul_share": (0.55, 0.6, 0.65), "memory_share": (0.6, 0.75)},
}  # fmt: skip
"""What training runs calibrate, by program, and the values a calibration may choose from."""


@dataclass(frozen=True)
class Figure:
    """One figure of a gate. `better` is "less" or "more"; None where a baseline or the prototype has none.

    `rows` are those scored, `all_rows` the same figure where no row is left out.
    """

    what: str
    ours: float
    reach: float | None = None
    prototype: float | None = None
    constant: float | None = None
    random: float | None = None
    all_rows: float | None = None
    better: str = "less"
    unit: str = "%"

    @property
    def met(self) -> bool | None:
        """Whether what was to be reached is reached."""
        if self.reach is None:
            return None
        return self.ours <= self.reach if self.better == "less" else self.ours >= self.reach


@dataclass(frozen=True)
class Gate:
    """A gate: what is scored, over how many rows, and whether any constant has seen them."""

    name: str
    rows: int
    in_sample: bool
    figures: tuple[Figure, ...] = field(default=())


def error(measured: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """|measured / predicted - 1| in per cent."""
    found: np.ndarray = 100 * np.abs(measured / predicted - 1)
    return found


def _score(measured: np.ndarray, times: np.ndarray) -> float:
    """What a calibration makes small: the median error, and a little of the tail."""
    errors = error(measured, times)
    return float(np.nanmedian(errors) + 0.3 * np.nanquantile(errors, 0.9))


def left_out(
    rows: Trial, groups: np.ndarray, grid: dict[str, tuple[float, ...]], fit: np.ndarray, wide: bool = True
) -> np.ndarray:
    """Times of all rows, each group's by constants that no row of the group has seen.

    `fit` says which rows calibrate; with `wide` the share of matmuls holds for the output head as well.
    """
    tried = [
        rows.predict({**one, "wide_share": one["matmul_share"]} if wide else one)["time_s"] for one in candidates(grid)
    ]
    out = np.full(len(groups), np.nan)
    usable = [np.where(fit, times, np.nan) for times in tried]
    for group in sorted(set(groups)):
        own = groups == group
        scores = [_score(rows.time_s, np.where(own, np.nan, times)) for times in usable]
        out[own] = tried[int(np.argmin(scores))][own]
    return out


def constant_mfu(rows: Trial, groups: np.ndarray, fit: np.ndarray) -> np.ndarray:
    """Times by one utilisation for all, the median of the rows outside the group, and the pipeline's idle time."""
    ideal = np.empty(len(rows.rows))
    for place, run in enumerate(rows.runs):
        layout, training = run.layout, run.training
        assert layout is not None
        flops = flops_per_token(run.model, training.sequence_length, layout.recompute)["full_attention"]
        work = flops * training.tokens_per_step / run.cluster.devices / run.cluster.accelerator.peak_flops_per_s
        count = max(1.0, training.global_batch_sequences / layout.data / layout.micro_batch)
        idle = float(bubble_overhead(pipeline=layout.pipeline, interleave=layout.interleave, micro_batches=count))
        ideal[place] = work * (1 + idle)
    out = np.full(len(groups), np.nan)
    for group in sorted(set(groups)):
        own = groups == group
        out[own] = ideal[own] * np.nanmedian(np.where(fit & ~own, rows.time_s / ideal, np.nan))
    return out


def _both(ours: np.ndarray, base: np.ndarray, measured: np.ndarray, mask: np.ndarray) -> list[tuple[float, float]]:
    """Median, ninetieth percentile and largest of the errors, each of ours and of the constant utilisation."""
    mask = mask & np.isfinite(ours) & np.isfinite(measured)
    mine, its = error(measured, ours)[mask], error(measured, base)[mask]
    return [
        (float(np.median(mine)), float(np.median(its))),
        (float(np.quantile(mine, 0.9)), float(np.quantile(its, 0.9))),
        (float(mine.max()), float(its.max())),
    ]


@cache
def _playbook() -> tuple[Panels, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    one = panels()
    fit = one.competitive & (one.devices <= 256)
    ours = left_out(one.trial, one.model, GRIDS["nanotron-2025"], fit)
    return one, ours, constant_mfu(one.trial, one.model, fit), one.trial.predict()


def _playbook_gates() -> Iterator[Gate]:
    one, ours, base, found = _playbook()
    time, known = one.trial.time_s, np.isfinite(ours)
    wide = one.ran & known & (one.devices <= 256)
    scored = one.competitive & wide
    errors, every = _both(ours, base, time, scored), _both(ours, base, time, wide)
    yield Gate("playbook R1, to 32 nodes, each panel from the other two", int(scored.sum()), False, (
        Figure("median", errors[0][0], 5, 5.2, errors[0][1], all_rows=every[0][0]),
        Figure("P90", errors[1][0], 20, 24, errors[1][1], all_rows=every[1][0]),
    ))  # fmt: skip
    mine, its = ranking(ours, time, one.groups(scored)), ranking(base, time, one.groups(scored))
    drawn, total = random_ranking(time, one.groups(scored)), ranking(ours, time, one.groups(wide))
    yield Gate("- ranking within groups of 8 or more", int(scored.sum()), False, tuple(
        Figure(f"Spearman, {what}", mine[key], reach, prototype, its[key], drawn[key], total[key], "more", "")
        for what, key, reach, prototype in (
            ("median", "spearman_median", 0.9, 0.87), ("worst", "spearman_worst", 0.7, 0.64),
        )
    ))  # fmt: skip
    yield Gate("- regret of the first choice", int(scored.sum()), False, tuple(
        Figure(what, 100 * mine[key], reach, prototype, 100 * its[key], 100 * drawn[key], 100 * total[key])
        for what, key, reach, prototype in (("median", "regret_median", 1, 0.1), ("mean", "regret_mean", 7, 9.4))
    ))  # fmt: skip
    flat, drawn = ranking(base, time, one.groups(wide)), random_ranking(time, one.groups(wide))
    yield Gate("- best of our three best, all rows", int(wide.sum()), False, tuple(
        Figure(what, 100 * total[key], reach, prototype, 100 * flat[key], 100 * drawn[key])
        for what, key, reach, prototype in (("mean", "three_mean", 0.2, 0.1), ("max", "three_max", 3, 0.6))
    ))  # fmt: skip
    kept = one.unstalled & one.consistent & known & (one.devices <= 128)
    single = wide & (one.pipeline == 1)
    settings: tuple[tuple[str, np.ndarray, tuple[tuple[float | None, float | None], ...]], ...] = (
        ("playbook R2 and R3, to 16 nodes", kept, ((7, 7.7), (0.95, 0.96), (3, 2.6))),
        ("playbook without pipelines, to 32 nodes", single, ((10, 10.4), (0.92, 0.91), (None, None))),
    )  # fmt: skip
    for name, mask, goals in settings:
        errors = _both(ours, base, time, mask)
        mine, its = ranking(ours, time, one.groups(mask)), ranking(base, time, one.groups(mask))
        drawn = random_ranking(time, one.groups(mask))
        (reach, proto), (rank_reach, rank_proto), (regret_reach, regret_proto) = goals
        yield Gate(name, int(mask.sum()), False, (
            Figure("median", errors[0][0], reach, proto, errors[0][1]),
            Figure(
                "Spearman, median", mine["spearman_median"], rank_reach, rank_proto, its["spearman_median"], 0.0,
                better="more", unit="",
            ),
            Figure(
                "mean regret", 100 * mine["regret_mean"], regret_reach, regret_proto, 100 * its["regret_mean"],
                100 * drawn["regret_mean"],
            ),
        ))  # fmt: skip
    yield from _memory_gates(one, found)


def _memory_gates(one: Panels, found: dict[str, np.ndarray]) -> Iterator[Gate]:
    rows = one.ran & np.isfinite(found["peak_gib"])
    errors = error(one.trial.peak_gib, found["peak_gib"])[rows]
    yield Gate("playbook memory, all rows that ran", int(rows.sum()), False, (
        Figure("median", float(np.median(errors)), 6, 7.1), Figure("P90", float(np.quantile(errors, 0.9)), 22, 23),
    ))  # fmt: skip
    lost = ~one.ran
    balanced, refused = fit_score(~one.trial.legal | ~(found["peak_gib"] < FIT_LIMIT_GIB), lost)
    with_margin, with_margin_refused = fit_score(~found["fits"], lost)
    yield Gate(f"playbook fit at {FIT_LIMIT_GIB:.0f} GiB counted, and the schedule's rule", len(lost), True, (
        Figure("balanced accuracy", balanced, 0.93, 0.92, 0.5, 0.5, with_margin, "more", ""),
        Figure("running rows refused", 100 * refused, 3, 4, 0.0, 50.0, 100 * with_margin_refused),
    ))  # fmt: skip


FIT_LIMIT_GIB = 69.0
"""Counted bytes from which a playbook run is taken not to fit: 80 GB less context, communication and fragmentation."""


def fit_score(refused: np.ndarray, lost: np.ndarray) -> tuple[float, float]:
    """Balanced accuracy of a refusal, and the share of running rows refused.

    >>> fit_score(np.array([True, False, False, True]), np.array([True, True, False, False]))
    (0.5, 0.5)
    """
    wrong = float(refused[~lost].mean())
    return (float(refused[lost].mean()) + 1 - wrong) / 2, wrong


def plain(rows: Iterable[Row]) -> Trial:
    """The rows of dense models without context ranks, which is what these gates have always been reached on.

    >>> all(not run.model.experts for run in plain(first_rows("mbr")).runs)
    True
    """
    every = trial(rows)
    return trial(
        row for row, run in zip(every.rows, every.runs, strict=True)
        if not run.model.experts and run.layout is not None and run.layout.context == 1
    )  # fmt: skip


def _source_gates() -> Iterator[Gate]:
    found, flat, times, count = [], [], [], 0
    for kind in ("a100", "h100"):
        mpt = trial(
            row for row in first_rows("mpt")
            if str(row["dtype"]) == "bf16" and str(row["accelerator"]).casefold().startswith(kind)
        )  # fmt: skip
        names, everything = mpt.column("model").astype(str), np.ones(len(mpt.rows), bool)
        found.append(left_out(mpt, names, GRIDS[f"torch-fsdp {kind}"], everything))
        flat.append(constant_mfu(mpt, names, everything))
        times.append(mpt.time_s)
        count += len(names)
    errors = _both(np.concatenate(found), np.concatenate(flat), np.concatenate(times), np.ones(count, bool))
    yield Gate("llm-foundry MPT (FSDP), one model out", count, False, (
        Figure("median", errors[0][0], 3.5, 3.5, errors[0][1]), Figure("P90", errors[1][0], 11, 11, errors[1][1]),
    ))  # fmt: skip
    old = trial(first_rows("kor", "nar"))
    source = np.array([str(row["id"])[:3] for row in old.rows])
    everything = np.ones(len(source), bool)
    ours, base = left_out(old, source, GRIDS["megatron-2021"], everything), constant_mfu(old, source, everything)
    errors = _both(ours, base, old.time_s, everything)
    yield Gate("Korthikanti and Narayanan, one source out", len(source), False, (
        Figure("median", errors[0][0], 3, 3.5, errors[0][1]), Figure("max", errors[2][0], 11, 11.7, errors[2][1]),
    ))  # fmt: skip
    nemo = plain(row for row in first_rows("nemo") if "SFT" not in str(row["model"]))
    names, everything = nemo.column("model").astype(str), np.ones(len(nemo.rows), bool)
    ours = left_out(nemo, names, GRIDS["megatron"], everything, wide=False)
    base = constant_mfu(nemo, names, everything)
    errors = _both(ours, base, nemo.time_s, everything)
    yield Gate("NeMo in fp8 on H100, pre-training, one model out", len(names), False, (
        Figure("median", errors[0][0], 7, 7.6, errors[0][1]),
    ))  # fmt: skip
    bridge = plain(
        row for row in first_rows("mbr")
        if str(row["accelerator"]).startswith("H100") and row["dtype"] and "SFT" not in str(row["model"])
    )  # fmt: skip
    errors = _both(bridge.predict()["time_s"], bridge.time_s, bridge.time_s, np.ones(len(bridge.rows), bool))
    yield Gate("Megatron-Bridge, dense, fp8, H100, by NeMo's constants", len(bridge.rows), False, (
        Figure("median", errors[0][0], 4, 1.8),
    ))  # fmt: skip


PUBLISHED_405B = {16384: 400e12 / 989.4e12, 8192: 430e12 / 989.4e12}
"""Utilisation of Llama 3.1 405B from the printed FLOP/s a device, read as full attention: it says no convention."""


def _largest() -> Iterator[Gate]:
    from course.examples import path
    from course.predict import predict
    from course.problem import load

    for devices, published in PUBLISHED_405B.items():
        document = predict(load(path(f"llama-3.1-405b-{devices}-h100")))
        found = document["mfu"]["full_attention"]
        reach, prototype = (4, 5.7) if devices == 16384 else (None, None)
        name = f"Llama 3.1 405B on {devices:,} H100: {100 * found:.1f} % against {100 * published:.1f} %"
        yield Gate(name, 1, False, (Figure("points off", 100 * abs(found - published), reach, prototype),))


def gates() -> tuple[Gate, ...]:
    """Every gate, computed from the packaged records through the ordinary prediction."""
    return (*_playbook_gates(), *_source_gates(), *_largest())


def table(found: Sequence[Gate]) -> str:
    """The gates as text, a line for each figure."""
    heads = ("reach", "proto", "ours", "constant", "random", "all rows")
    lines = [f"{'gate':60} {'figure':20}" + "".join(f" {head:>8}" for head in heads)]
    for gate in found:
        for place, one in enumerate(gate.figures):
            name = f"{gate.name} ({gate.rows})" if place == 0 else ""
            digits = 1 if one.unit else 2
            values = (one.reach, one.prototype, one.ours, one.constant, one.random, one.all_rows)
            shown = "".join(f" {'-' if value is None else f'{value:.{digits}f}':>8}" for value in values)
            mark = {True: "met", False: "missed", None: ""}[one.met] + (" in-sample" if gate.in_sample else "")
            lines.append(f"{name:60} {one.what:20}{shown} {mark}".rstrip())
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(gates()))

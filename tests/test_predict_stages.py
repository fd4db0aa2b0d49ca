"""What each stage holds and how long a pipeline takes, against walks and simulated schedules."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.legality import SCHEDULES
from course.predict import predict
from course.predict.columns import from_layout
from course.predict.compute import layer_times
from course.predict.constants import constants_for
from course.predict.memory import in_flight
from course.predict.stages import cut_by_cost, stages
from course.problem import Layout
from course.simulators.pipeline import gpipe, interleaved, one_forward_one_backward, simulate, zero_bubble
from tests.test_predict import example, with_cluster

GIB = 2.0**30




# ------------------------------------------------------------------------------------------------ stages
def walk(layers: int, pipeline: int, chunks: int, rule: str) -> list[tuple[int, bool, bool]]:
    """(layers, input, head) of every stage, by cutting the list of pieces and dealing the cuts round the stages."""
    parts = pipeline * chunks
    pieces = ["layer"] * layers
    ends = layers % parts != 0 and (layers + 2) % parts == 0
    if rule == "ends-one-fewer":
        ends = (layers + 2) % parts == 0
    if ends and pipeline > 1:
        pieces = ["table", *pieces, "table"]
    base, extra = divmod(len(pieces), parts)
    cuts, start = [], 0
    for part in range(parts):
        size = base + (part < extra)
        cuts.append(pieces[start : start + size])
        start += size
    held = [0] * pipeline
    for part, cut in enumerate(cuts):
        held[part % pipeline] += cut.count("layer")
    return [(count, stage == 0, stage == pipeline - 1) for stage, count in enumerate(held)]


def walk_by_cost(layers: int, pipeline: int, head: Fraction) -> list[tuple[int, bool, bool]]:
    """The same by cost: a stage closes once all blocks so far weigh more than its share; `head` weighs in layers."""
    share = (layers + head) / pipeline
    ends = [0]
    for stage in range(pipeline):
        taken = ends[-1]
        while taken < layers and (taken == ends[-1] or taken <= share * (stage + 1)):
            taken += 1
        ends.append(taken)
    counts = [after - before for before, after in itertools.pairwise(ends)]
    # the stage that would take the block after the head: behind the last layer, or one on when the head overfills it
    stage = next(place for place in range(pipeline) if ends[place + 1] == layers)
    stage += layers > share * (stage + 1)
    stage += layers + head > share * (stage + 1)
    return [(count, place == 0, place == stage) for place, count in enumerate(counts)]


@pytest.mark.parametrize(
    ("layers", "pipeline", "head", "first", "head_on"),
    [
        (16, 2, 4, 11, 1), (16, 4, 4, 6, 3), (16, 8, 4, 3, 7),
        (32, 8, Fraction(64, 29), 5, 7), (32, 16, Fraction(64, 29), 3, 15),
    ],
)  # fmt: skip
def test_a_heavy_head_leaves_more_layers_to_the_first_stages(
    layers: int, pipeline: int, head: Fraction, first: int, head_on: int
) -> None:
    """The playbook's models: a head that weighs four layers, or 2.2; the memory of rank 0 shows eleven layers of 16."""
    found = cut_by_cost(layers, Fraction(head).denominator, Fraction(head).numerator, pipeline)
    assert found[0][0] == first
    assert [place for place, (_, held) in enumerate(found) if held] == [head_on]
    assert sum(count for count, _ in found) == layers


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 8), st.sampled_from(["even", "ends", "first-extra"]))
def test_representative_stages_stand_for_the_real_ones(p: int, v: int, size: int, kind: str) -> None:
    v = 1 if p == 1 or kind == "first-extra" else v
    layers = {"even": p * v * (size + 1), "ends": p * v * (size + 1) - 2, "first-extra": p + size}[kind]
    if layers < 1 or (kind == "ends" and p == 1):
        return
    rule = {"even": "even", "ends": "ends-one-fewer", "first-extra": "first-extra"}[kind]
    base = example("llama-3-8b-8-h100")
    run = dataclasses.replace(
        base,
        model=dataclasses.replace(base.model, layers=layers, dense_layers=layers),
        software=dataclasses.replace(base.software, stage_rule=rule),
        layout=None,
    )
    columns = {name: np.array([float(value)]) for name, value in (("pipeline", p), ("interleave", v))}
    model = run.model
    head = Fraction(
        model.vocabulary * model.hidden,
        4 * model.heads * model.head_size * model.hidden + 3 * model.ffn * model.hidden,
    )
    real = walk_by_cost(layers, p, head) if kind == "first-extra" else walk(layers, p, v, rule)
    ours = stages(run, columns)
    assert float((ours.layers * ours.stands_for).sum()) == layers == sum(count for count, _, _ in real)
    assert float(ours.stands_for.sum()) == p
    seen = {}
    for place in range(ours.layers.shape[1]):
        if ours.stands_for[0, place] > 0:
            kind_of = (int(ours.layers[0, place]), bool(ours.has_input[0, place]), bool(ours.has_head[0, place]))
            seen[kind_of] = (int(ours.index[0, place]), int(ours.stands_for[0, place]))
    expected = {kind_of: (real.index(kind_of), real.count(kind_of)) for kind_of in real}
    assert seen == expected


def schedule_of(name: str, p: int, m: int, v: int):
    if name == "interleaved":
        return interleaved(p, m, v)
    return {"gpipe": gpipe, "1f1b": one_forward_one_backward, "zero-bubble": zero_bubble}[name](p, m)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(1, 12), st.integers(2, 4), st.sampled_from(SCHEDULES), st.integers(0, 1))
def test_activations_in_flight_are_those_of_the_simulated_schedule(
    p: int, m: int, v: int, schedule: str, ends: int
) -> None:
    v = v if schedule == "interleaved" else 1
    m = m * p if schedule == "interleaved" else m
    base = example("llama-3-8b-8-h100")
    layers = 2 * p * v - 2 * ends
    run = dataclasses.replace(
        base, model=dataclasses.replace(base.model, layers=layers, dense_layers=layers), layout=None
    )
    layout = Layout(pipeline=p, schedule=schedule, interleave=v)
    columns = {**from_layout(layout, run), "micro_batches": np.array([float(m)])}
    found_stages = stages(run, columns)
    wide = {name: column[:, None] for name, column in columns.items()}
    ours = in_flight(wide, found_stages)
    split = {"weight": 1} if schedule == "zero-bubble" else {}
    peaks = simulate(schedule_of(schedule, p, m, v), forward=1, backward=2, **split).peak_in_flight()
    for place in range(ours.shape[1]):
        if found_stages.stands_for[0, place] > 0:
            assert ours[0, place] * v == peaks[int(found_stages.index[0, place])]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(SCHEDULES),
    st.sampled_from([30, 32, 62, 64]),
)
def test_pipeline_time_is_never_below_the_simulated_one(p: int, v: int, schedule: str, layers: int) -> None:
    """Exact at one chunk when the slowest stage is the last, as when stages are even and the head adds to the last."""
    v = max(v, 2) if schedule == "interleaved" else 1
    if layers % (p * v) and (layers + 2) % (p * v):
        return
    base = example("llama-3-8b-8-h100")
    run = dataclasses.replace(
        with_cluster(base, devices=p),
        model=dataclasses.replace(base.model, layers=layers, dense_layers=layers),
        layout=Layout(pipeline=p, schedule=schedule, interleave=v),
    )
    document = predict(run)
    assert document["legal"], document["reasons"]
    step = document["step"]
    ours = step["compute_s"] + step["bubble_s"]
    columns = from_layout(run.layout, run)
    layer = layer_times(run, columns, constants_for(run))
    real = walk(layers, p, v, "even")
    forward = [float(count * layer.forward[0] + last * layer.head_forward[0]) for count, _, last in real]
    backward = [float(count * layer.backward[0] + last * layer.head_backward[0]) for count, _, last in real]
    if schedule == "zero-bubble":
        weight = [float(count * layer.weight[0] + last * layer.head_weight[0]) for count, _, last in real]
        inputs = [b - w for b, w in zip(backward, weight, strict=True)]
        simulated = float(simulate(schedule_of(schedule, p, 128, v), forward, inputs, weight=weight).makespan)
    else:
        simulated = float(simulate(schedule_of(schedule, p, 128, v), forward, backward).makespan)
    assert ours >= simulated * (1 - 1e-9)
    whole = [f + b for f, b in zip(forward, backward, strict=True)]
    if v == 1 and whole[-1] == max(whole) and schedule != "zero-bubble":
        assert ours == pytest.approx(simulated)
    assert ours <= simulated * 1.25

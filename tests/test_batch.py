"""Step 5: formula, event simulator and picture agree; plans that do not hold the batch are refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from course import batch, records
from course.errors import UserError
from course.explorers.batch import SCHEDULES, ordered
from course.pictures.batch import COLOURS, IDLE, PALE, Timeline, timelines
from course.simulators.pipeline import BACKWARD, FORWARD, WEIGHT, Pipeline, Work, simulate, zero_bubble_ahead

SMALL = settings(max_examples=40, deadline=None)
times = st.integers(1, 9)
counts = st.integers(1, 6)


def drawn(run: Pipeline) -> dict[str, np.ndarray]:
    """What a picture shows of a pipeline, in its own units of time: for each colour the bars' starts and ends."""
    picture = Timeline()
    picture.update(finding="f", runs={"one": run})
    scale = (picture.right - picture.left) / float(run.makespan)
    found: dict[str, list[tuple[float, float, float]]] = {}
    for box, colour in zip(picture._boxes, picture._colours, strict=True):
        if box[0][0] >= picture.left - 1e-9 and box[0][1] > 0.7:  # not the legend
            span = (float(box[0][1]), *((float(box[side][0]) - picture.left) / scale for side in (0, 1)))
            found.setdefault(colour, []).append(span)
    return {colour: np.array(spans) for colour, spans in found.items()}


def agrees(run: Pipeline, time: float) -> None:
    """The makespan is `time`, and the picture shows it, and as much work on each stage as the simulator."""
    assert float(run.makespan) == pytest.approx(time, rel=1e-12)
    bars = drawn(run)
    rows = sorted(set(bars[IDLE][:, 0]))
    assert len(rows) == len(run.orders)
    assert bars[IDLE][:, 2] == pytest.approx(np.full(len(rows), time))
    work = np.concatenate([spans for colour, spans in bars.items() if colour != IDLE])
    for stage, row in enumerate(rows):
        mine = work[work[:, 0] == row]
        assert (mine[:, 2] - mine[:, 1]).sum() == pytest.approx(float(run.schedule.busy(stage)))
        ordered_bars = mine[np.argsort(mine[:, 1])]
        assert (ordered_bars[1:, 1] >= ordered_bars[:-1, 2] - 1e-6).all()  # no two pieces at once
    share = 1 - (work[:, 2] - work[:, 1]).sum() / (len(rows) * time)
    assert share == pytest.approx(float(run.idle_share), abs=1e-9)


@SMALL
@given(st.sampled_from(["gpipe", "1f1b", "interleaved"]), counts, counts, st.integers(2, 4), times, times)
def test_even_stages(kind, stages, rounds, chunks, forward, backward):
    """Exact for any forward and backward; interleaving for whole rounds of stages."""
    count = rounds * stages if kind == "interleaved" else rounds
    parts = chunks if kind == "interleaved" else 1
    run = simulate(ordered(kind, stages, count, chunks), float(forward), float(backward))
    both = forward + backward
    time = batch.pipeline_time(
        micro_batches=count, interleave=parts, slowest_stage_time=both, sum_stage_times=stages * both
    )
    agrees(run, time)
    given_ = {"pipeline": stages, "interleave": parts, "micro_batches": count}
    assert float(run.idle_share) == pytest.approx(batch.bubble_share(**given_), abs=1e-12)
    ideal = count * both
    assert (float(run.makespan) - ideal) / ideal == pytest.approx(batch.bubble_overhead(**given_), abs=1e-12)
    held = {"gpipe": batch.gpipe_in_flight, "1f1b": batch.one_f_one_b_in_flight}.get(kind, batch.interleaved_in_flight)
    arguments = {"micro_batches": count, "pipeline": stages, "interleave": parts}
    for stage, peak in enumerate(run.peak_in_flight()):
        wanted = {entry.key for entry in held.inputs}
        values = {key: value for key, value in {**arguments, "stage": stage}.items() if key in wanted}
        assert peak / parts == pytest.approx(held(**values))


@SMALL
@given(counts, st.integers(1, 13), times, times, times)
def test_zero_bubble(stages, count, forward, inputs, weights):
    """Exact where the weights' part is the shortest, filled or not; elsewhere the formula may be too short."""
    run = simulate(ordered("zero-bubble", stages, count, 1), forward, inputs, weight=weights)
    arguments = {"micro_batches": count, "pipeline": stages, "stage_forward_time": forward,
                 "input_gradient_time": inputs, "weight_gradient_time": weights}  # fmt: skip
    if weights <= min(forward, inputs):
        agrees(run, batch.zero_bubble_time(**arguments))
    else:
        assert run.makespan >= batch.zero_bubble_time(**arguments)
    assert run.makespan >= batch.synchronous_floor(**arguments)
    assert run.peak_in_flight() == [min(stages, count)] * stages


def test_printed_bubbles_are_those_of_the_simulated_schedules():
    """Profiled parts and sends of three models: 16 printed rates to every printed digit."""
    small = [row for row in records.pipelines() if row["pp"] * row["micro_batches"] <= 1024]
    assert len(small) == 8
    for row in small:
        stages, count, send = row["pp"], row["micro_batches"], row["send_ms"]
        forward, inputs, weights = (row[f"{part}_ms"] for part in ("forward", "input_gradient", "weight_gradient"))
        work = count * (forward + inputs + weights)
        whole = simulate(ordered("1f1b", stages, count, 1), forward, inputs + weights, send)
        split = simulate(ordered("zero-bubble", stages, count, 1), forward, inputs, send, weight=weights)
        assert round(1 - work / whole.makespan, 4) == row["bubble_1f1b"]
        assert round(1 - work / split.makespan, 4) == row["bubble_zb_h1"]


HEX = {colour.lower(): kind for palette in (COLOURS, PALE) for kind, colour in palette.items()}
PICTURE = Timeline()


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(list(SCHEDULES.values())), st.lists(st.tuples(times, times, times), min_size=1, max_size=5),
       st.integers(1, 3), st.integers(2, 3), st.integers(0, 3))  # fmt: skip
def test_the_drawn_bars_are_the_simulated_pieces(kind, stages, rounds, chunks, send):
    """Every bar read back from the drawn collection: its row, kind, start and end, for uneven stages and sends."""
    forward, inputs, weights = (list(map(float, column)) for column in zip(*stages, strict=True))
    count = rounds * len(stages) if kind == "interleaved" else rounds + 1
    split = {"weight": weights} if kind == "zero-bubble" else {}
    run = simulate(ordered(kind, len(stages), count, chunks), forward, inputs, send, **split)
    PICTURE.update(finding="f", runs={"one": run})
    paths = [path.vertices for path in PICTURE.bars.get_paths()]
    colours = [to_hex(colour) for colour in PICTURE.bars.get_facecolor()]
    left, right, top = (np.array([pick(box) for box in paths]) for pick in
                        (lambda box: box[:, 0].min(), lambda box: box[:, 0].max(), lambda box: box[:, 1].min()))
    rows = [place for place, colour in enumerate(colours) if colour == IDLE and right[place] > 8]  # not the legend's
    assert len(rows) == len(stages)
    start, scale = left[rows[0]], (right[rows[0]] - left[rows[0]]) / float(run.makespan)
    shown = sorted(
        (row, HEX[colours[place]], round(float((left[place] - start) / scale), 6),
         round(float((right[place] - start) / scale), 6))
        for place in range(len(paths)) if colours[place] in HEX
        for row, idle in enumerate(rows) if abs(top[place] - top[idle]) < 1e-9
    )  # fmt: skip
    assert shown == sorted(
        (stage, work.kind, round(float(run.start(stage, work)), 6), round(float(run.finish(stage, work)), 6))
        for stage, order in enumerate(run.orders) for work in order
    )  # fmt: skip


@SMALL
@given(st.lists(st.tuples(times, times), min_size=1, max_size=6), st.integers(1, 9), st.integers(0, 4))
def test_uneven_stages_and_sends(stages, count, send):
    """GPipe: exact. 1F1B with free sends: below the bound while backward is one multiple of forward."""
    forward, backward = [list(column) for column in zip(*stages, strict=True)]
    both = [sum(pair) for pair in stages]
    agrees(
        simulate(ordered("gpipe", len(stages), count, 1), forward, backward, send),
        batch.gpipe_time(sum_stage_times=sum(both), micro_batches=count, slowest_forward_time=max(forward),
                         slowest_backward_time=max(backward), pipeline=len(stages), send_time=send),
    )  # fmt: skip
    ratio = backward[0]
    both = [(1 + ratio) * time for time in forward]
    bound = batch.pipeline_time(
        micro_batches=count, interleave=1, slowest_stage_time=max(both), sum_stage_times=sum(both)
    )
    for kind in ("gpipe", "1f1b"):
        orders = ordered(kind, len(stages), count, 1)
        assert simulate(orders, forward, [ratio * time for time in forward]).makespan <= bound


def test_1f1b_exceeds_the_bound_where_backward_over_forward_differs_from_stage_to_stage():
    run = simulate(ordered("1f1b", 3, 3, 1), [1, 4, 1], [4, 1, 1])
    assert run.makespan == 23
    assert batch.pipeline_time(micro_batches=3, interleave=1, slowest_stage_time=5, sum_stage_times=12) == 22


@SMALL
@given(st.integers(2, 4), st.integers(1, 4), st.integers(2, 8))
def test_chunks_go_below_the_floor_of_one_chunk_a_stage_not_below_their_own(stages, rounds, chunks):
    """Backward 2, the sum of two gradients of 1: idle (P - 1)(1 + 2)/v, beside (P - 1) forwards of 1 or of 1/v."""
    count = rounds * stages
    run = simulate(ordered("interleaved", stages, count, chunks), Fraction(1), Fraction(2))
    floor = batch.synchronous_floor(micro_batches=count, pipeline=stages, stage_forward_time=1, input_gradient_time=1,
                                    weight_gradient_time=1)  # fmt: skip
    assert (run.makespan < floor) == (chunks > 3)
    assert run.makespan > 3 * count + Fraction(stages - 1, chunks)


@pytest.mark.parametrize(("stages", "count"), [(2, 4), (3, 6), (4, 8), (4, 12), (5, 11)])
def test_without_a_barrier_a_second_step_begins_before_the_first_has_ended(stages, count):
    orders = zero_bubble_ahead(stages, count)
    one = simulate(orders, 1, 1, weight=1)
    later = [order + [work._replace(micro_batch=work.micro_batch + count) for work in order] for order in orders]
    two = simulate(later, 1, 1, weight=1)
    assert one.makespan == 3 * count + stages - 1  # the floor
    assert two.makespan == 6 * count + stages - 1  # its idle time once, not twice
    assert max(two.peak_in_flight()) == 2 * stages - 1
    finding = timelines({"both": two}, "t", step=count).axes[0].texts
    assert str(count + 1) not in {text.get_text() for text in finding}


@SMALL
@given(st.integers(2, 6), st.integers(1, 12), st.sampled_from([0.125, 0.5, 1.0]))
def test_1f1b_pays_a_round_trip_for_every_round_of_stages(stages, rounds, send):
    """Stage 0 has P in flight: P micro-batches each P pieces and 2(P - 1) sends, for any whole number of rounds."""
    count = rounds * stages
    run = simulate(ordered("1f1b", stages, count, 1), 1.0, 2.0, send)
    backwards = [run.start(0, Work(BACKWARD, m)) for m in range(count)]
    for early, late in zip(backwards, backwards[stages:], strict=False):
        assert late - early == pytest.approx(3 * stages + 2 * (stages - 1) * send)


@SMALL
@given(st.lists(times, min_size=1, max_size=6), st.integers(1, 9))
def test_1f1b_with_the_slowest_stage_last_is_exact(forward, count):
    forward = sorted(forward)
    both = [3 * time for time in forward]
    agrees(
        simulate(ordered("1f1b", len(forward), count, 1), forward, [2 * time for time in forward]),
        batch.pipeline_time(micro_batches=count, interleave=1, slowest_stage_time=max(both), sum_stage_times=sum(both)),
    )


@SMALL
@given(st.lists(times, min_size=2, max_size=5), st.integers(1, 3), st.integers(2, 4), st.integers(1, 3))
def test_interleaving_is_bounded_while_the_chunks_of_a_stage_are_equal(forward, rounds, chunks, ratio):
    """Backward one multiple of forward on all stages; otherwise it may take longer, as the next test shows."""
    count, both = rounds * len(forward), [(1 + ratio) * time for time in forward]
    orders = ordered("interleaved", len(forward), count, chunks)
    run = simulate(orders, [Fraction(time) for time in forward], [Fraction(ratio * time) for time in forward])
    bound = batch.pipeline_time(
        micro_batches=count, interleave=chunks, slowest_stage_time=max(both), sum_stage_times=sum(both)
    )
    assert float(run.makespan) <= bound * (1 + 1e-12)


def test_a_heavy_first_and_last_chunk_take_longer_than_the_formula():
    """Embedding and head on the ends of 4 stages with 2 chunks: 75, where the formula for equal chunks says 69.75."""
    forward = [[1.5, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.5]]
    run = simulate(ordered("interleaved", 4, 8, 2), forward, [[2 * one for one in row] for row in forward])
    assert run.makespan == 75
    assert batch.pipeline_time(micro_batches=8, interleave=2, slowest_stage_time=7.5, sum_stage_times=27) == 69.75


@SMALL
@given(st.permutations(["F0", "F1", "B0", "B1"]), st.permutations(["F0", "F1", "B0", "B1"]), times, times)
def test_no_order_of_whole_backwards_undercuts_1f1b(first, second, forward, backward):
    """Every order of two stages and two micro-batches that can run at all takes at least M + P - 1 pieces."""
    from course.simulators.engine import DeadlockError

    names = {"F": FORWARD, "B": BACKWARD}
    orders = [[Work(names[word[0]], int(word[1])) for word in order] for order in (first, second)]
    try:
        run = simulate(orders, forward, backward)
    except DeadlockError:
        return
    assert run.makespan >= 3 * (forward + backward)


def test_the_picture_colours_kinds_and_chunks():
    bars = drawn(simulate(ordered("interleaved", 2, 2, 2), 1.0, 2.0))
    assert {colour: len(spans) for colour, spans in bars.items()} == {
        IDLE: 2, COLOURS[FORWARD]: 4, COLOURS[BACKWARD]: 4, PALE[FORWARD]: 4, PALE[BACKWARD]: 4,
    }  # fmt: skip
    split = drawn(simulate(ordered("zero-bubble", 2, 3, 1), 1, 1, weight=1))
    assert len(split[COLOURS[WEIGHT]]) == 6
    words = {text.get_text() for text in timelines({"a": simulate(ordered("1f1b", 2, 2, 1), 1, 2)}, "t").axes[0].texts}
    assert {"t", "a", "stage 0", "stage 1", "1", "2", "forward", "backward", "idle"} <= words


# ---------------------------------------------------------------- plans
PLAN = {"data": 8, "micro_batch": 2, "sequence_length": 4096, "accumulation": 16}


def test_plans_that_hold_the_batch():
    more = {**PLAN, "data": 16, "micro_batch": 4, "accumulation": 4, "schedule": "1f1b"}
    assert batch.held({"a": PLAN, "b": more}) == 8 * 2 * 16 * 4096
    assert batch.held({"a": PLAN}) == 1048576


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": 16}, "b takes 512 sequences a step and a 256: not the same work. With accumulation 8 it would hold"),
        ({"accumulation": 64}, "With accumulation 16 it would hold 256"),
        ({"data": 12}, "Its 24 sequences at once do not divide 256: change data or micro_batch"),
        ({"sequence_length": 8192, "micro_batch": 1}, "Give both the same sequence_length"),
    ],
)
def test_plans_that_do_not(change, said):
    with pytest.raises(UserError, match=said.replace("(", r"\(")):
        batch.held({"a": PLAN, "b": {**PLAN, **change}})


def test_a_plan_without_a_field_or_no_plan_is_a_sentence():
    with pytest.raises(UserError, match="b lacks accumulation; a plan has data"):
        batch.held({"a": PLAN, "b": {key: PLAN[key] for key in ("data", "micro_batch", "sequence_length")}})
    with pytest.raises(UserError, match="no plan"):
        batch.held({})


# ---------------------------------------------------------------- weights' time
def test_weight_time_is_asked_for_where_it_belongs():
    with pytest.raises(ValueError, match="give `weight`, their time"):
        simulate(ordered("zero-bubble", 2, 2, 1), 1, 1)
    with pytest.raises(ValueError, match="no order has weight gradients"):
        simulate(ordered("1f1b", 2, 2, 1), 1, 1, weight=1)


def test_weights_wait_for_their_own_input_gradient_only():
    run = simulate(ordered("zero-bubble", 4, 8, 1), 1, 1, weight=1)
    for stage, order in enumerate(run.orders):
        for work in order:
            if work.kind == WEIGHT:
                own = work._replace(kind=BACKWARD)
                assert run.start(stage, work) >= run.finish(stage, own)
            if work.kind == BACKWARD and stage < 3:
                assert run.start(stage, work) >= run.finish(stage + 1, work)

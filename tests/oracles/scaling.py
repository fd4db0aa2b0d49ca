"""Oracles of step 9: pieces of work dealt out to devices, every outcome of a gradient's noise, measured runs."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import count, product

from oracles.checking import Answers, Check, agrees


# ---------------------------------------------------------------- a cluster that deals out pieces
def _clock(devices: int, base: int, fixed: Fraction, pieces: int, piece: Fraction, grow: Fraction) -> Fraction:
    """Seconds of one unit: a part nobody shares, pieces dealt to whoever is free, a token that visits new devices."""
    free = [Fraction(0)] * devices
    for _ in range(pieces):
        heapq.heappush(free, heapq.heappop(free) + piece)
    now = max(free) + fixed
    for _ in range(devices - base):  # the token's way is that much longer
        now += grow / base
    return now


_CLUSTERS = (
    # base, times, fixed, pieces of a device on the baseline, seconds of a piece, growth for each base devices more
    (2, 3, Fraction(1), 6, Fraction(2), Fraction(1, 2)),
    (4, 2, Fraction(3), 10, Fraction(1, 2), Fraction(0)),
    (3, 4, Fraction(0), 8, Fraction(5, 4), Fraction(2)),
    (1, 5, Fraction(7, 2), 10, Fraction(1), Fraction(3, 10)),
    (8, 2, Fraction(1, 4), 4, Fraction(3), Fraction(1, 8)),
)


def _strong() -> Iterator[tuple[int, int, Fraction, Fraction, Fraction, Fraction, Fraction]]:
    for base, times, fixed, each, piece, grow in _CLUSTERS:
        pieces = base * each
        one = _clock(base, base, fixed, pieces, piece, grow)
        many = _clock(base * times, base, fixed, pieces, piece, grow)
        yield base, base * times, fixed, each * piece, grow, one, many


def pieces_dealt_out() -> Answers:
    for base, devices, fixed, divisible, grow, _, many in _strong():
        yield {"fixed_time": fixed, "divisible_time": divisible, "growing_time": grow, "baseline_devices": base,
               "scaled_devices": devices}, many  # fmt: skip


def more_pieces_for_more_devices() -> Answers:
    for base, times, fixed, each, piece, grow in _CLUSTERS:
        time = _clock(base * times, base, fixed, base * times * each, piece, grow)
        yield {"fixed_time": fixed, "divisible_time": each * piece, "growing_time": grow, "baseline_devices": base,
               "scaled_devices": base * times}, time  # fmt: skip


def one_clock_over_the_other() -> Answers:
    for base, devices, fixed, _, grow, one, many in _strong():
        yield {"fixed_share": fixed / one, "growing_share": grow / one, "baseline_devices": base,
               "scaled_devices": devices}, one / many  # fmt: skip


def clocks_without_growth() -> Answers:
    for base, times, fixed, each, piece, _ in _CLUSTERS:
        one, many = (_clock(n, base, fixed, base * each, piece, Fraction(0)) for n in (base, base * times))
        yield {"fixed_share": fixed / one, "baseline_devices": base, "scaled_devices": base * times}, one / many


def share_that_was_put_in() -> Answers:
    for base, times, fixed, each, piece, _ in _CLUSTERS:
        one, many = (_clock(n, base, fixed, base * each, piece, Fraction(0)) for n in (base, base * times))
        yield {"baseline_time": one, "scaled_time": many, "device_ratio": times}, fixed / one


def the_grown_work_on_the_small_cluster() -> Answers:
    for base, times, fixed, each, piece, _ in _CLUSTERS:
        pieces = base * times * each
        small, large = (_clock(n, base, fixed, pieces, piece, Fraction(0)) for n in (base, base * times))
        yield {"large_fixed_share": fixed / large, "baseline_devices": base,
               "scaled_devices": base * times}, small / large  # fmt: skip


def every_size_tried() -> Answers:
    for base, each, piece, grow in ((2, 48, Fraction(1, 3), Fraction(1)), (4, 90, Fraction(2), Fraction(20)),
                                    (1, 72, Fraction(1, 8), Fraction(1))):  # fmt: skip
        sizes = range(base, 25 * base)
        work = base * each * piece  # in pieces so small that any number of devices shares them evenly
        times = {n: Fraction(1) + work / n + sum((grow / base for _ in range(n - base)), Fraction(0)) for n in sizes}
        yield {"divisible_time": each * piece, "growing_time": grow, "baseline_devices": base}, min(
            times, key=lambda n: times[n])  # fmt: skip


# ---------------------------------------------------------------- families
def units_finished_in_an_hour() -> Answers:
    """Each device has the work it had; count units, and what each device did for every second."""
    for few, many in ((Fraction(2), Fraction(5, 2)), (Fraction(9), Fraction(10)), (Fraction(4), Fraction(3))):
        done = {seconds: sum(1 for _ in range(int(3600 / seconds))) for seconds in (few, many)}
        yield {"time_on_baseline": few, "time_on_devices": many}, Fraction(done[many], done[few])


def published_weak() -> Answers:
    # llm-foundry, MPT-7B, 6 sequences a device: 10,643 tokens/s a device on 8 H100, 9,670 on 512
    yield {"time_on_baseline": 6 * 2048 / 10643, "time_on_devices": 6 * 2048 / 9670}, 0.9086
    # NVIDIA/DeepLearningExamples #894: a batch of 16,384 in 0.35 s on one, eight of them in 0.5 s on eight
    yield {"time_on_baseline": 0.35, "time_on_devices": 0.5}, 0.7


def flops_of_each_device_second() -> Answers:
    for base, devices, first, second, one, many in ((2, 6, 120, 900, 3, 5), (4, 4, 64, 80, 2, 4), (3, 5, 90, 60, 6, 2)):
        rate_one = sum(Fraction(first, base) for _ in range(base)) / sum(one for _ in range(base))
        rate_many = sum(Fraction(second, devices) for _ in range(devices)) / sum(many for _ in range(devices))
        yield {"baseline_work": first, "scaled_work": second, "time_on_baseline": one, "time_on_devices": many,
               "baseline_devices": base, "scaled_devices": devices}, rate_many / rate_one  # fmt: skip


# ---------------------------------------------------------------- gradients with noise
def _expected_loss(rate: float, batch: int, slope: float, noise: float, curvature: float) -> float:
    """Mean loss after one step on a parabola, over every outcome of the noise of each sequence."""
    place = slope / curvature
    total = 0.0
    for signs in product((-1, 1), repeat=batch):
        gradient = sum(slope + sign * noise for sign in signs) / batch
        total += curvature * (place - rate * gradient) ** 2 / 2
    return total / 2**batch


def _lowest(function: Callable[[float], float], low: float, high: float) -> float:
    for _ in range(200):  # thirds of the interval are dropped until nothing is left
        one, two = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, two) if function(one) < function(two) else (one, high)
    return (low + high) / 2


_NOISE = ((1, 2.0, 2.0, 0.5), (2, 1.0, 2.0, 1.0), (3, 1.5, 3.0, 2.0), (6, 1.0, 3.0, 0.25), (5, 2.0, 1.0, 1.0))
"""(batch, slope, noise of one sequence, curvature); noise and slope are as large at a batch of (noise / slope)²."""


def _gain(batch: int, slope: float, noise: float, curvature: float) -> tuple[float, float]:
    """Share of the progress, and of the learning rate, that an exact gradient allows."""
    def after(rate: float) -> float:
        return _expected_loss(rate, batch, slope, noise, curvature)

    best, exact = _lowest(after, 0, 3 / curvature), _lowest(
        lambda rate: _expected_loss(rate, 1, slope, 0.0, curvature), 0, 3 / curvature)  # fmt: skip
    start = _expected_loss(0.0, 1, slope, 0.0, curvature)
    full = start - _expected_loss(exact, 1, slope, 0.0, curvature)
    return (start - after(best)) / full, best / exact


def _even_noise_batch(slope: float, noise: float) -> float:
    """The batch at which the square of the mean's noise is that of the slope."""
    return sum(noise**2 for _ in range(1)) / slope**2


def progress_of_a_noisy_step() -> Answers:
    for batch, slope, noise, curvature in _NOISE:
        given = {"global_batch_sequences": batch, "critical_batch": _even_noise_batch(slope, noise)}
        yield given, _gain(batch, slope, noise, curvature)[0]


def learning_rate_of_a_noisy_step() -> Answers:
    for batch, slope, noise, curvature in _NOISE:
        given = {"global_batch_sequences": batch, "critical_batch": _even_noise_batch(slope, noise)}
        yield given, _gain(batch, slope, noise, curvature)[1]


_RUNS = ((24, 1, 2.0, 2.0, 0.5), (12, 2, 1.0, 2.0, 1.0), (30, 3, 1.5, 3.0, 2.0), (20, 5, 2.0, 1.0, 1.0))
"""Steps that an exact gradient needs, and a noise."""


def _walk(least: int, batch: int, slope: float, noise: float, curvature: float) -> int:
    """Steps until the progress of `least` exact steps is made."""
    each = _gain(batch, slope, noise, curvature)[0]
    progress = 0.0
    for steps in count():
        if progress >= least - 1e-6:
            return steps
        progress += each


def _reached() -> Iterator[tuple[dict[str, float], int, int]]:
    for least, batch, slope, noise, curvature in _RUNS:
        few = least * _even_noise_batch(slope, noise)  # sequences as the batch goes to 0, where noise is all
        given = {"least_steps": least, "least_sequences": few, "global_batch_sequences": batch}
        yield given, _walk(least, batch, slope, noise, curvature), batch


def steps_walked() -> Answers:
    for given, steps, _ in _reached():
        yield given, steps


def sequences_read() -> Answers:
    for given, steps, batch in _reached():
        yield given, sum(batch for _ in range(steps))


def seconds_walked() -> Answers:
    for place, (given, steps, _) in enumerate(_reached()):
        step = Fraction(place + 1, 2)
        yield given | {"step_time": step}, sum(step for _ in range(steps))


def clocks_of_all_walkers() -> Answers:
    for place, (given, steps, _) in enumerate(_reached()):
        step, devices = Fraction(place + 1, 2), place + 3
        yield given | {"step_time": step, "scaled_devices": devices}, sum(
            step for _ in range(steps) for _ in range(devices))  # fmt: skip


def batch_of_twice_the_steps() -> Answers:
    for least, slope, noise in ((8, 1.0, 2.0), (5, 2.0, 4.0), (20, 1.0, 1.0)):
        found = next(b for b in range(1, 9) if _walk(least, b, slope, noise, 1.0) <= 2 * least)
        yield {"least_steps": least, "least_sequences": least * _even_noise_batch(slope, noise)}, found


ORACLES: dict[str, list[Check]] = {
    "scaling.strong_time": [agrees(pieces_dealt_out)],
    "scaling.weak_time": [agrees(more_pieces_for_more_devices)],
    "scaling.universal_speedup": [agrees(one_clock_over_the_other)],
    "scaling.amdahl_speedup": [agrees(clocks_without_growth)],
    "scaling.karp_flatt": [agrees(share_that_was_put_in)],
    "scaling.gustafson_speedup": [agrees(the_grown_work_on_the_small_cluster)],
    "scaling.fastest_devices": [agrees(every_size_tried)],
    "scaling.weak_efficiency": [agrees(units_finished_in_an_hour), agrees(published_weak, 1e-4)],
    "scaling.work_efficiency": [agrees(flops_of_each_device_second)],
    "scaling.gain_share": [agrees(progress_of_a_noisy_step, 1e-6), agrees(learning_rate_of_a_noisy_step, 1e-5)],
    "scaling.critical_batch": [agrees(batch_of_twice_the_steps)],
    "scaling.steps_to_target": [agrees(steps_walked)],
    "scaling.sequences_to_target": [agrees(sequences_read)],
    "scaling.time_to_target": [agrees(seconds_walked)],
    "scaling.device_time_to_target": [agrees(clocks_of_all_walkers)],
}

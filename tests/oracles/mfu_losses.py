"""Oracles of step 6: a cluster's device-seconds sorted one by one, pipelines run event by event, stops on a clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from course.simulators.pipeline import gpipe, interleaved, simulate
from oracles.checking import Answers, Check, agrees


@dataclass
class Account:
    """Where the FLOPs went that all held devices could have done in a step."""

    given: dict[str, float]
    unused: Fraction
    waited: Fraction
    slow: Fraction
    repeated: Fraction
    useful: Fraction

    def share(self, part: Fraction) -> Fraction:
        return part / (self.unused + self.waited + self.slow + self.repeated + self.useful)


def _accounts() -> Iterator[Account]:
    """(devices at work, held, peak, one letter a second: w waits, b works at half speed, f at full, r repeats)."""
    for devices, held, peak, seconds in (
        (3, 5, 8, "wwbbffr"), (2, 2, 16, "bbbr"), (4, 7, 4, "wffffrrr"), (1, 1, 6, "wwwb"), (6, 8, 10, "bbf"),
    ):  # fmt: skip
        parts = dict.fromkeys("uwsrf", Fraction(0))
        executed = Fraction(0)
        for what in seconds:
            for device in range(held):
                if device >= devices:
                    parts["u"] += peak
                elif what == "w":
                    parts["w"] += peak
                else:
                    done = Fraction(peak, 2) if what == "b" else Fraction(peak)
                    executed += done
                    parts["s"] += peak - done
                    parts["r" if what == "r" else "f"] += done
        yield Account(
            {"devices": devices, "held_devices": held, "peak_flops_per_s": peak, "step_time": len(seconds),
             "waiting_time": seconds.count("w"), "busy_time": len(seconds) - seconds.count("w"),
             "executed_flops": executed, "model_flops": parts["f"], "time": len(seconds)},
            parts["u"], parts["w"], parts["s"], parts["r"], parts["f"],
        )  # fmt: skip


def _pick(account: Account, *names: str) -> dict[str, float]:
    return {name: account.given[name] for name in names}


def unused() -> Answers:
    for account in _accounts():
        yield _pick(account, "devices", "held_devices"), account.share(account.unused)


def waited() -> Answers:
    for account in _accounts():
        names = ("devices", "held_devices", "waiting_time", "step_time")
        yield _pick(account, *names), account.share(account.waited)


def slow() -> Answers:
    for account in _accounts():
        names = ("devices", "held_devices", "busy_time", "executed_flops", "peak_flops_per_s", "step_time")
        yield _pick(account, *names), account.share(account.slow)


def repeated() -> Answers:
    for account in _accounts():
        names = ("held_devices", "executed_flops", "model_flops", "peak_flops_per_s", "step_time")
        yield _pick(account, *names), account.share(account.repeated)


def left_over() -> Answers:
    for account in _accounts():
        names = ("held_devices", "model_flops", "peak_flops_per_s", "busy_time", "waiting_time")
        yield _pick(account, *names), account.share(account.useful)


def executed_of_all() -> Answers:
    for account in _accounts():
        if account.unused == 0:
            names = ("devices", "executed_flops", "peak_flops_per_s", "time")
            yield _pick(account, *names), account.share(account.useful + account.repeated)
    for devices, peak, seconds in ((5, 8, 3), (7, 2, 11)):  # half of what was possible
        half = Fraction(sum(peak for _ in range(devices) for _ in range(seconds)), 2)
        given = {"devices": devices, "executed_flops": half, "peak_flops_per_s": peak, "time": seconds}
        yield given, Fraction(1, 2)


def narayanan() -> Answers:
    # Narayanan et al. 2021, table 1, counts recomputation: 163 TFLOP/s of 312, 52 %; 138 TFLOP/s, 44 %
    for devices, rate, share in ((3072, 163e12, 0.52), (512, 138e12, 0.44)):
        yield {"devices": devices, "executed_flops": devices * rate, "peak_flops_per_s": 312e12, "time": 1}, share


def pipelines_before_and_after() -> Answers:
    for stages, chunks, after, times in ((2, 1, 2, 2), (4, 1, 6, 3), (3, 2, 3, 2), (4, 3, 4, 2), (2, 4, 4, 3)):
        spans = []
        for micro_batches in (after * times, after):
            orders = gpipe(stages, micro_batches) if chunks == 1 else interleaved(stages, micro_batches, chunks)
            spans.append(simulate(orders, forward=Fraction(1), backward=Fraction(2)).makespan)
        yield {
            "pipeline": stages, "interleave": chunks, "micro_batches": after, "baseline_devices": 5,
            "scaled_devices": 5 * times,
        }, spans[0] / spans[1]  # fmt: skip


def clock_with_stops() -> Answers:
    """A clock of whole hours: each stop throws away the hours after the last checkpoint and those of the restart."""
    for work, stops, lost in ((20, 3, 2), (50, 1, 7), (9, 0, 4), (31, 4, 1)):
        clock = [True] * work
        for _ in range(stops):
            clock += [False] * lost
        given = {"interruptions": stops, "lost_time": lost, "held_time": len(clock)}
        yield given, Fraction(sum(clock), len(clock))


def meters_of_both_clusters() -> Answers:
    for first, slow_time, second, fast_time in ((2, 9, 6, 4), (5, 8, 7, 7), (4, 3, 5, 2), (1, 10, 3, 3)):
        one = sum(1 for _ in range(first) for _ in range(slow_time))
        two = sum(1 for _ in range(second) for _ in range(fast_time))
        given = {"baseline_devices": first, "baseline_time": slow_time, "scaled_devices": second,
                 "scaled_time": fast_time}  # fmt: skip
        yield given, Fraction(two, one)


def extra_for_each_hour() -> Answers:
    for given, ratio in meters_of_both_clusters():
        one = given["baseline_devices"] * given["baseline_time"]
        saved = sum(1 for hour in range(given["baseline_time"]) if hour >= given["scaled_time"])
        yield given, (ratio - 1) * one / saved


ORACLES: dict[str, list[Check]] = {
    "mfu.hfu": [agrees(executed_of_all), agrees(narayanan, 0.01)],
    "mfu.unused_share": [agrees(unused)],
    "mfu.waiting_share": [agrees(waited)],
    "mfu.slow_kernels_share": [agrees(slow)],
    "mfu.repeated_share": [agrees(repeated)],
    "mfu.mfu_of_parts": [agrees(left_over)],
    "mfu.pipeline_speedup": [agrees(pipelines_before_and_after)],
    "mfu.goodput_of_stops": [agrees(clock_with_stops)],
    "mfu.hours_ratio": [agrees(meters_of_both_clusters)],
    "mfu.price_of_an_hour": [agrees(extra_for_each_hour)],
}

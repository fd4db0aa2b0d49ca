"""Oracles of step 6: a cluster whose seconds are counted one by one, and what was published of large runs."""

from __future__ import annotations

from fractions import Fraction

from oracles.checking import Answers, Check, agrees


def _possible(devices: int, peak: int, seconds: Fraction, tick: Fraction = Fraction(1, 8)) -> Fraction:
    """FLOPs that `devices` devices could do in `seconds`, counted device by device and tick by tick."""
    total, now = Fraction(0), Fraction(0)
    while now < seconds:
        for _ in range(devices):
            total += peak * tick
        now += tick
    return total


_CLUSTERS = (
    (2, 16, Fraction(5), Fraction(1, 4)),
    (5, 8, Fraction(3, 2), Fraction(1, 2)),
    (1, 40, Fraction(9), Fraction(3, 5)),
)
"""(devices, peak, seconds, share of the peak that was reached)."""


def share_of_what_was_possible() -> Answers:
    for devices, peak, seconds, share in _CLUSTERS:
        work = share * _possible(devices, peak, seconds)
        yield {"devices": devices, "peak_flops_per_s": peak, "time": seconds, "model_flops": work}, share


def published_mfu() -> Answers:
    # Llama 3 paper, table 4: 400 TFLOP/s and 41 % on 16,384 H100; 430 TFLOP/s and 43 % on 8,192
    for devices, rate, answer in ((16384, 400e12, 0.41), (8192, 430e12, 0.43)):
        yield (
            {
                "devices": devices,
                "peak_flops_per_s": 989.4e12,
                "time": 3600,
                "model_flops": sum(rate * 3600 for _ in range(devices)),
            },
            answer,
        )


def share_reached_in_a_step() -> Answers:
    for devices, peak, seconds, share in _CLUSTERS:
        tokens = 6
        yield (
            {
                "devices": devices,
                "peak_flops_per_s": peak,
                "step_time": seconds,
                "tokens_per_step": tokens,
                "flops_per_token": share * _possible(devices, peak, seconds) / tokens,
            },
            share,
        )


def palm_540b() -> Answers:
    # PaLM paper, table 3: 238.3 thousand tokens/s on 6,144 TPU v4; without attention 45.7 %
    yield (
        {
            "devices": 6144,
            "peak_flops_per_s": 275e12,
            "step_time": 1,
            "tokens_per_step": 238.3e3,
            "flops_per_token": 6 * 540.35e9,
        },
        0.457,
    )


def tokens_of_one_second() -> Answers:
    for per_second, seconds in ((7, 3), (12, 5), (4, 1)):
        yield {"tokens_per_step": sum(per_second for _ in range(seconds)), "step_time": seconds}, per_second


def published_rates() -> Answers:
    # axolotl #3362: 131,072 tokens in 1.93 s
    yield {"tokens_per_step": 131072, "step_time": 1.93}, 67912.95


def seconds_until_the_work_is_done() -> Answers:
    for devices, peak, seconds, share in _CLUSTERS:
        left, now, tick = share * _possible(devices, peak, seconds), Fraction(0), Fraction(1, 40)
        while left > 0:
            for _ in range(devices):
                left -= peak * share * tick
            now += tick
        yield (
            {
                "devices": devices,
                "peak_flops_per_s": peak,
                "mfu": share,
                "model_flops": share * _possible(devices, peak, seconds),
            },
            now,
        )


def gpt_3_on_1024() -> Answers:
    # Narayanan et al. 2021, section 5.1: 300e9 tokens, 175e9 parameters, 140 TFLOP/s a device with recomputation
    # (8 FLOPs a parameter and token): 34 days
    yield (
        {
            "devices": 1024,
            "peak_flops_per_s": 312e12,
            "mfu": 140 / 312,
            "model_flops": 8 * 300e9 * 175e9,
        },
        34 * 24 * 3600,
    )


def clock_with_lost_time() -> Answers:
    for good, lost, needed in ((3, 1, 12), (9, 1, 18), (1, 1, 7), (5, 0, 10)):
        progress, clock = 0, 0
        while progress < needed:
            clock += good + lost
            progress += good
        yield {"time": progress, "goodput": Fraction(good, good + lost)}, clock


def clocks_of_all_devices() -> Answers:
    for devices, hours, good, lost in ((3, 4, 3, 1), (7, 9, 9, 1), (1, 5, 1, 0)):
        clocks = [0.0] * devices
        progress = 0
        while progress < hours:
            progress += 1
            clocks = [clock + (good + lost) / good for clock in clocks]
        yield {"devices": devices, "time": hours * 60 * 60, "goodput": Fraction(good, good + lost)}, sum(clocks)


def deepseek_v3_per_trillion_tokens() -> Answers:
    # DeepSeek-V3 report, section 1: 180K H800 hours a trillion tokens, 3.7 days on 2,048
    yield {"devices": 2048, "time": 3.7 * 24 * 3600, "goodput": 1}, 180e3


def bill_of_all_devices() -> Answers:
    for price in (2, 0.5):
        for given, hours in clocks_of_all_devices():
            yield given | {"price_per_accelerator_hour": price}, sum(price for _ in range(round(4 * hours))) / 4


def deepseek_v3_bill() -> Answers:
    # DeepSeek-V3 report, table 1: 2,788K H800 hours at 2 dollars, 5.576 million dollars
    given = {"devices": 2048, "time": 2788e3 / 2048 * 3600, "goodput": 1, "price_per_accelerator_hour": 2}
    yield given, 5.576e6


def cluster_that_ends_on_time() -> Answers:
    """Run a cluster of known size, and ask which size was needed."""
    for devices, peak, seconds, share in _CLUSTERS:
        for good, lost in ((1, 0), (3, 1)):
            tokens = 5
            parameters = share * _possible(devices, peak, seconds) / tokens / (2 + 4)  # 2 forward, 4 backward
            yield {
                "parameters": parameters, "tokens": tokens, "mfu": share, "peak_flops_per_s": peak,
                "time": seconds * Fraction(good + lost, good), "goodput": Fraction(good, good + lost),
            }, devices  # fmt: skip


def runs_while_the_baseline_runs_once() -> Answers:
    for times, seconds in ((4, 3), (7, 2), (1, 9)):
        yield {"baseline_time": sum(seconds for _ in range(times)), "scaled_time": seconds}, times


def published_speedup() -> Answers:
    # Llama 3 paper, table 4: 8,192 devices at 430 and 16,384 at 400 TFLOP/s; 1.86 of an ideal 2
    yield {"baseline_time": 1 / (8192 * 430), "scaled_time": 1 / (16384 * 400)}, 1.86


def published_efficiency() -> Answers:
    # allenai/OLMo #845: 12,000 tokens/s a device on 4, 9,000 on 8
    yield {"baseline_time": 1 / 48000, "baseline_devices": 4, "scaled_time": 1 / 72000, "scaled_devices": 8}, 0.75
    # tensorflow #36008: 1,200 images/s on one, 4,712 on 4, 7,302 on 8
    for devices, rate, answer in ((4, 4712, 0.9816667), (8, 7302, 0.760625)):
        given = {"baseline_time": 1 / 1200, "baseline_devices": 1, "scaled_time": 1 / rate, "scaled_devices": devices}
        yield given, answer


ORACLES: dict[str, list[Check]] = {
    "mfu.mfu": [agrees(share_of_what_was_possible), agrees(published_mfu, 0.02)],
    "mfu.step_mfu": [agrees(share_reached_in_a_step), agrees(palm_540b, 0.002)],
    "mfu.tokens_per_s": [agrees(tokens_of_one_second), agrees(published_rates, 1e-6)],
    "mfu.run_time": [agrees(seconds_until_the_work_is_done), agrees(gpt_3_on_1024, 0.005)],
    "mfu.wall_time": [agrees(clock_with_lost_time)],
    "mfu.accelerator_hours": [agrees(clocks_of_all_devices), agrees(deepseek_v3_per_trillion_tokens, 0.015)],
    "mfu.cost": [agrees(bill_of_all_devices), agrees(deepseek_v3_bill)],
    "mfu.devices_for_deadline": [agrees(cluster_that_ends_on_time)],
    "mfu.speedup": [agrees(runs_while_the_baseline_runs_once), agrees(published_speedup, 0.001)],
    "mfu.scaling_efficiency": [agrees(published_efficiency, 1e-6)],
}

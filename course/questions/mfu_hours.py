"""Step 6, hours: accelerator-hours and goodput, what a stop may cost, hours against MFU, the price of an hour saved."""

from __future__ import annotations

from course import mfu
from course.questions.draws import picks
from course.questions.kinds import Given, Judgement, Mistake, Number, Question

__all__ = ["QUESTIONS"]


def _hours(given: Given, goodput: float) -> float:
    seconds = given["billions"] * 1e9 / given["rate"]
    return float(mfu.accelerator_hours(devices=1, time=seconds, goodput=goodput)) / 1e3


_held = Number(
    id="mfu.11",
    title="Hours to pay for",
    prompt=(
        "While it runs, each of {devices:,} A100 trains {rate:g} tokens a second of a 65B model. {billions:,} billion "
        "tokens are to be trained, and {goodput:.0%} of the time held makes progress. How many thousand GPU-hours are "
        "paid for?"
    ),
    given={"devices": 2048, "rate": 380.0, "billions": 1400, "goodput": 0.92},
    draw=picks(rate=(350.0, 380.0, 420.0), billions=(1000, 1400, 2000), goodput=(0.8, 0.85, 0.92)),
    answer=lambda g: _hours(g, g["goodput"]),
    unit="1",
    mistakes=(
        Mistake("goodput forgotten", lambda g: _hours(g, 1)),
        Mistake("goodput upside down", lambda g: _hours(g, 1) * g["goodput"]),
        Mistake("total for per device", lambda g: _hours(g, g["goodput"]) / g["devices"],
                "The rate is that of one device: tokens over it are device-seconds already."),
    ),
    hints=(
        "Tokens over tokens a second of one device: seconds of what?",
        "They are device-seconds; no MFU and no number of devices is needed.",
        "Tokens over rate, over 3,600, over goodput, over a thousand.",
    ),
    difficulty=1,
    minutes=4,
    source="LLaMA paper, 2023: 380 tokens/s a GPU, 1,022,362 GPU-hours for 1.4 trillion tokens",
)  # fmt: skip

_stop = Number(
    id="mfu.12",
    title="What a stop may cost",
    prompt=(
        "In {days} days a run is stopped {stops} times. Each stop loses the work since the last checkpoint and the "
        "restart. How long may a stop take, on average, for a goodput of {goodput:.0%}?"
    ),
    given={"days": 40, "stops": 310, "goodput": 0.93},
    draw=picks(days=(40, 54, 60), stops=(200, 310, 419), goodput=(0.88, 0.9, 0.93)),
    answer=lambda g: (1 - g["goodput"]) * g["days"] * 1440 / g["stops"],
    unit="min",
    mistakes=(
        Mistake("share for ratio", lambda g: g["goodput"] * g["days"] * 1440 / g["stops"],
                "The time that makes progress was divided among the stops; they take the rest."),
        Mistake("goodput forgotten", lambda g: g["days"] * 1440 / g["stops"],
                "That is the time between two stops."),
    ),
    hints=(
        "How much time may be lost in all?",
        "The share that makes no progress, of the days held.",
        "That time in minutes, over the stops.",
    ),
    difficulty=1,
    minutes=3,
    source="Llama 3 paper: 419 unexpected stops in 54 days on 16,384 GPUs, over 90 % effective",
)  # fmt: skip

_not_mfu = Judgement(
    id="mfu.13",
    title="Fewer hours, higher MFU?",
    prompt=(
        "For a trillion tokens, mixture A (37 billion parameters used by a token) took 180,000 hours of one device, "
        "dense model B (70 billion) 427,000 of the same device. Both count matmuls alone, against the same peak. Which "
        "run has the higher MFU?"
    ),
    choices={"a": "A", "b": "B", "c": "neither: they are within a tenth"},
    reasons={
        "1": "it took fewer hours for the same tokens",
        "2": "per hour it did more FLOPs: hours follow from FLOPs a token as well as from MFU",
        "3": "it trains more tokens a second, which is what MFU measures",
        "4": "its hours and its parameters grow nearly by the same factor",
    },
    answer=lambda _: ("a", "2"),
    mistakes=(
        Mistake("hours for MFU", lambda _: ("a", "1"),
                "B would take more hours at the same MFU as well. Divide out what a token costs."),
        Mistake("right for another reason", lambda _: ("a", "3"),
                "Tokens a second compare runs of one model; what a token costs differs here."),
        Mistake("rule for another case", lambda _: ("c", None), "Compute both ratios: 427/180 and 70/37."),
    ),
    hints=(
        "MFU is FLOPs over hours, but for a constant. What are the FLOPs of each?",
        "B's tokens cost 70/37 as much. Did B take that many times the hours, or more?",
        "1.89 times the FLOPs in 2.37 times the hours.",
    ),
    difficulty=2,
    minutes=4,
    source="DeepSeek-V3 report (180K H800 hours a trillion tokens) beside a dense model's card",
)  # fmt: skip


def _times(given: Given) -> dict[str, float]:
    return {"baseline_devices": given["few"], "scaled_devices": given["many"],
            "baseline_time": given["slow"] * 24, "scaled_time": given["fast"] * 24}  # fmt: skip


_hour_saved = Number(
    id="mfu.14",
    title="The price of an hour",
    prompt=(
        "On {few} devices a run takes {slow:g} days, on {many} the same run {fast:g}. A device-hour costs {price:g} "
        "dollars. What does each hour that comes off the wall time cost, in dollars?"
    ),
    given={"few": 256, "many": 512, "slow": 7.6, "fast": 6.6, "price": 2.0},
    draw=picks(fast=(6.2, 6.6, 5.1), price=(2.0, 2.5, 3.0)),
    answer=lambda g: float(mfu.price_of_an_hour(**_times(g))) * g["price"],
    unit="1",
    mistakes=(
        Mistake("price of running", lambda g: (g["many"] - g["few"]) * g["price"],
                "That is what the added devices cost for an hour of running, not for an hour saved."),
        Mistake("price of running", lambda g: g["many"] * g["price"],
                "That is the price of an hour of the larger cluster, not of an hour saved."),
        Mistake("other quantity", lambda g: (g["many"] * g["fast"] - g["few"] * g["slow"]) * 24 * g["price"],
                "That is the extra cost of the whole run; divide it by the hours it saves."),
    ),
    hints=(
        "What does the run cost on each cluster, and how many hours come off?",
        "Device-hours: devices times days times 24. Take the difference.",
        "(many fast - few slow) over (slow - fast), times the price.",
    ),
    difficulty=2,
    minutes=4,
    source="the first source document: more devices can reduce wall time while increasing accelerator-hours",
)  # fmt: skip

QUESTIONS: tuple[Question, ...] = (_held, _stop, _not_mfu, _hour_saved)

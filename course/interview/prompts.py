"""The question of an interview, made from a seed: a model, tokens, a cluster, a deadline, a budget and one twist.

What the interviewer says stands in `lines`, a sentence a fact; those in `withheld` come only to a candidate who asks.
The run behind it is complete, so the library can answer whatever was said.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from functools import lru_cache

from course import catalog
from course.answer.goals import least_accelerator_hours
from course.errors import UserError
from course.estimate import flops_per_token
from course.interview import twists
from course.interview.spoken import lines_of, said_goal
from course.interview.twists import TWISTS, Draft
from course.interview.usual import usual_mfu
from course.mfu import wall_time
from course.problem import Cluster, Goal, Run, Training
from course.sweep import search
from course.sweep.search import Search

__all__ = ["LEVELS", "TWISTS", "Prompt", "generate", "searched"]

LEVELS = {1: "one model, a few nodes", 2: "tens of billions of parameters, hundreds of devices", 3: "the largest runs"}
LARGEST_SEED = 2**63


@dataclass(frozen=True)
class Prompt:
    """One question.

    `run` is the whole truth; `lines` what the interviewer knows, by topic; `withheld` the topics kept back until asked
    for; `claim` the topic of a wrong premise in what is said, or "".
    """

    seed: int
    level: int
    twist: str
    run: Run
    opening: str
    lines: tuple[tuple[str, str], ...]
    withheld: tuple[str, ...]
    claim: str

    def said(self, asked: tuple[str, ...] = ()) -> list[str]:
        """The sentences the candidate has heard, the answers to what was asked among them."""
        return [text for topic, text in self.lines if topic not in self.withheld or topic in asked]

    def reply(self, topic: str) -> str:
        """What the interviewer answers to a question about a topic.

        >>> generate(7).reply("weather")
        'That is for you to choose, or does not matter here.'
        """
        return dict(self.lines).get(topic, "That is for you to choose, or does not matter here.")


@lru_cache(maxsize=512)
def generate(seed: int, level: int | None = None, twist: str | None = None) -> Prompt:
    """The question of a seed; the same arguments give the same question.

    Args:
        seed: any whole number from 0.
        level: 1 to 3; by default the seed decides.
        twist: one of `TWISTS`; by default the seed decides.

    Raises:
        UserError: the seed, the level or the twist is none.

    >>> generate(3) == generate(3), generate(3).run.cluster.devices > 0
    (True, True)
    """
    _check(seed, level, twist)
    draw = random.Random(f"interview/{seed}")
    level = level or draw.choice(tuple(LEVELS))
    twist = twist or draw.choice(TWISTS)
    for attempt in range(60):
        found = _attempt(random.Random(f"interview/{seed}/{level}/{twist}/{attempt}"), seed, level, twist)
        if found is not None:
            return found
    raise UserError(f"No realistic question was found for seed {seed}. Take another seed.")


@lru_cache(maxsize=64)
def searched(run: Run) -> Search:
    """All layouts of a run that are legal and fit, kept for the last few runs."""
    return search(replace(run, layout=None))


def _check(seed: int, level: int | None, twist: str | None) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < LARGEST_SEED:
        raise UserError(f"The seed must be a whole number from 0 to {LARGEST_SEED - 1:,}, not {str(seed)[:40]}.")
    if level is not None and level not in LEVELS:
        raise UserError(f"There are the levels 1, 2 and 3, not {str(level)[:40]}.")
    if twist is not None and twist not in TWISTS:
        raise UserError(f"There is no twist {str(twist)[:40]!r}; there are {', '.join(TWISTS)}.")


def _attempt(draw: random.Random, seed: int, level: int, twist: str) -> Prompt | None:
    draft = twists.draft(draw, level, twist)
    run = _run(draft)
    try:
        found = searched(run)
    except UserError:
        return None
    if bool(found.fitting) == draft.too_few or not found.legal:
        return None
    run = replace(run, goal=_goal(draw, run, found, draft))
    claim, claimed = twists.claim(draw, run, found) if twist == "wrong premise" else ("", "")
    if twist == "wrong premise" and not claim:
        return None
    withheld = twists.withheld(draw, level) if twist == "under-specified" else ()
    opening = draw.choice(OPENINGS).format(
        devices=run.cluster.devices, chip=run.cluster.accelerator.name.partition(" (")[0], model=draft.model,
        tokens=_tokens(run.training.tokens),
        deadline="" if "deadline" in withheld else said_goal(run),
    )  # fmt: skip
    lines = lines_of(run, level, draft.twist_line, claim, claimed)
    return Prompt(seed, level, twist, run, opening, tuple(lines.items()), withheld, claim)


OPENINGS = (
    "You have {devices:,} {chip}. Train {model} on {tokens} tokens{deadline}. How do you split it, how long does it "
    "take, and what does it cost in accelerator-hours?",
    "We want to train {model} on {tokens} tokens with {devices:,} {chip}{deadline}. Walk me through the plan.",
    "A team asks for {devices:,} {chip} to train {model} on {tokens} tokens{deadline}. Would you say yes, and with "
    "which layout?",
)


def _run(draft: Draft) -> Run:
    batch = max(1, round(draft.batch_millions * 2**20 / draft.sequence))
    training = Training(draft.billions * 1e9, draft.sequence, batch, "bf16", catalog.state("bf16-18"))
    software = catalog.software("megatron", training.state)
    cluster = Cluster(draft.accelerator, draft.fabric, draft.devices, draft.goodput)
    return Run("interview", draft.shape, training, software, cluster)


def _goal(draw: random.Random, run: Run, found: Search, draft: Draft) -> Goal:
    """A deadline, and for some a budget, clearly met, clearly missed, or beyond the peak of the devices."""
    least = least_accelerator_hours(run) / run.cluster.devices / 24
    if draft.too_few:
        return Goal(days=_round(3 * least))
    steps = run.training.tokens / run.training.tokens_per_step
    best = float(wall_time(time=found.values["time_s"].min() * steps, goodput=run.cluster.goodput)) / 86400
    # days at an MFU that is usual: a goal called met must be met by a sober plan, not by the best case alone
    usual = usual_mfu(run.cluster.accelerator.id, run.training.precision, bool(run.model.experts))
    sober = max(best, least_whole(run) / usual)
    kind = draw.choices(("met", "missed", "impossible"), (6, 3, 2))[0]
    if kind == "missed" and 1.15 * least > 0.7 * best:
        kind = "met"
    days = {"met": sober * draw.uniform(1.35, 1.9), "missed": max(1.15 * least, best * draw.uniform(0.5, 0.65)),
            "impossible": least * draw.uniform(0.6, 0.8)}[kind]  # fmt: skip
    budget = None
    if draw.random() < 0.4:
        budget = _round(run.cluster.devices * 24 * sober * draw.uniform(1.35, 2.2))
    return Goal(days=_round(days), budget_accelerator_hours=budget)


def least_whole(run: Run) -> float:
    """Days at full peak, goodput counted, with the attention whole: what an MFU of that convention divides."""
    flops = flops_per_token(run.model, run.training.sequence_length)["full_attention"] * run.training.tokens
    time = flops / run.cluster.devices / run.cluster.accelerator.peak_flops_per_s
    return float(wall_time(time=time, goodput=run.cluster.goodput)) / 86400


def _round(value: float) -> float:
    """Two digits, as a manager would say it."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{round(value / scale) * scale:.6g}")


def _tokens(count: float) -> str:
    return f"{count / 1e12:g} trillion" if count >= 1e12 else f"{count / 1e9:g} billion"

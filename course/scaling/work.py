"""A work unit says what one timed piece of work is; times of different work units are never divided.

>>> step = WorkUnit("llama-2-7b", sequences=512, sequence_length=4096)
>>> step.tokens
2097152
>>> same_work(step, replace(step, sequences=1024))
Traceback (most recent call last):
    ...
course.scaling.work.DifferentWork: These are different work units, so their times are not divided: sequences of one \
update is 512 in one and 1024 in the other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from course.errors import UserError

__all__ = ["DifferentWork", "WorkUnit", "differences", "replace", "same_work"]


class DifferentWork(UserError):
    """Two numbers were about to be divided that belong to different work units; the sentence says what differs."""


@dataclass(frozen=True)
class WorkUnit:
    """One optimizer step as a piece of work: everything that must be equal before two times of it are compared.

    How it is done (devices, layout, micro-batch, accumulation) is no part of it.

    Args:
        model: what is trained, a name.
        sequences: the global batch, sequences of one update.
        sequence_length: places of one sequence, tokens and padding.
        lengths: how long the documents in them are, in words: the distribution they are drawn from.
        update: what counts as done, in words: a valid update is applied, on finite gradients of all sequences.
        precision: number format of the matmuls, as a run file names it; "unstated" where a table does not say.
    """

    model: str
    sequences: int
    sequence_length: int
    lengths: str = "packed to full length"
    update: str = "one valid optimizer step"
    precision: str = "bf16"

    def __post_init__(self) -> None:
        for name in ("sequences", "sequence_length"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UserError(f"{name} ({_MEANING[name]}) must be a whole number above 0, not {value!r}.")
        for name in ("model", "lengths", "update", "precision"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name).strip():
                raise UserError(f"{name} ({_MEANING[name]}) must be said in words, not {getattr(self, name)!r}.")

    @property
    def tokens(self) -> int:
        """Tokens of one unit."""
        return self.sequences * self.sequence_length

    def words(self) -> str:
        """The unit in one line.

        >>> WorkUnit("llama-2-7b", 512, 4096).words()
        'one valid optimizer step of llama-2-7b on 512 sequences of 4,096 tokens, packed to full length, bf16'
        """
        return (
            f"{self.update} of {self.model} on {self.sequences:,} sequences of {self.sequence_length:,} tokens, "
            f"{self.lengths}, {self.precision}"
        )


_MEANING = {
    "model": "model",
    "sequences": "sequences of one update",
    "sequence_length": "tokens of a sequence",
    "lengths": "lengths of the documents",
    "update": "what counts as done",
    "precision": "precision",
}


def differences(one: WorkUnit, other: WorkUnit, but: tuple[str, ...] = ()) -> tuple[str, ...]:
    """What differs between two work units, one phrase a field; `but` names fields that may differ.

    >>> differences(WorkUnit("a", 8, 2048), WorkUnit("b", 8, 2048))
    ('model is a in one and b in the other',)
    """
    return tuple(
        f"{_MEANING[field.name]} is {getattr(one, field.name)} in one and {getattr(other, field.name)} in the other"
        for field in fields(WorkUnit)
        if field.name not in but and getattr(one, field.name) != getattr(other, field.name)
    )


def same_work(one: WorkUnit, other: WorkUnit, but: tuple[str, ...] = ()) -> None:
    """Nothing, where both are the same work.

    Raises:
        DifferentWork: they are not; one sentence says what differs.
    """
    found = differences(one, other, but)
    if found:
        raise DifferentWork(
            f"These are different work units, so their times are not divided: {'; '.join(found)}."
        )

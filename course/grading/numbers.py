"""A number with a unit: is it right, and if not, which known mistake leads to it.

A bare number is read in the unit the question asks for. A written unit is converted. A number that would be right in
another unit of the same quantity is told as such.
"""

from __future__ import annotations

import math
import re

from course.grading.answers import Encoded
from course.grading.arithmetic import Unreadable, read
from course.grading.verdict import Verdict, refused, right, wrong
from course.questions.kinds import Given, Number
from course.questions.mistakes import explain
from course.questions.quantities import UnknownUnit, Written, alternatives, mixed, parse

__all__ = ["close", "judge", "quantity"]

_SCALES = {
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "B": 1e9,
    "T": 1e12,
    "million": 1e6,
    "billion": 1e9,
    "trillion": 1e12,
    "bn": 1e9,
}
NEAR = 0.03
"""A wrong value within this share of the right one is called close, so that rounding is not taken for an idea."""
_NUMBER = re.compile(r"[+\-−]?\s*(?:\d[\d,_'\u2009\u202f\u00a0 ]*\d|\d)?(?:\.\d*)?(?:[eE][+\-−]?\d+)?")


def close(value: float, target: float, relative: float, absolute: float = 0.0) -> bool:
    """Whether two numbers agree within a share of the target, or absolutely."""
    return abs(value - target) <= max(relative * abs(target), absolute)


def quantity(text: str) -> tuple[float, str]:
    """Read `"3.6e25 FLOP"`, `"3,600 GB"`, `"40 %"`, `"3.6 x 10^25"`, `"6*70e9*15e12 FLOP"`: a number and its unit.

    Raises:
        Unreadable: there is no number, or it can be read in two ways.

    >>> quantity("3,600 GB"), quantity("3.6×10^25 FLOP"), quantity("40%")
    ((3600.0, 'GB'), (3.6e+25, 'FLOP'), (40.0, '%'))
    """
    body = text.strip().lstrip("~≈= ").strip()
    body = re.sub(r"(?<=[\d.])\s*[x×·*]\s*10\s*(?:\^|\*\*)\s*([+\-−]?\d+)", r"e\1", body).replace("−", "-")
    match = _NUMBER.match(body)
    number, unit = (match[0], body[match.end() :]) if match else ("", body)
    if re.match(r"\s*(?:[+*/^(]|-\s*[\d(])", unit) or not any(c.isdigit() for c in number):
        return _computed(body, text)
    number = number.strip()
    if "," in number and not re.fullmatch(r"[+\-]?\s*\d{1,3}(,\d{3})+(\.\d*)?([eE][+\-]?\d+)?", number):
        raise Unreadable(
            f"{text!r} can be read in two ways: write a point for decimals, and commas only between thousands."
        )
    try:
        return float(re.sub(r"[,_'\s]", "", number)), unit.strip()
    except ValueError:
        raise Unreadable(f"{text!r} does not begin with a number.") from None


def _computed(body: str, text: str) -> tuple[float, str]:
    """Arithmetic on numbers, then perhaps a unit: the longest beginning that can be read."""
    match = re.match(r"[\d\s.eE+\-*/^()_]*[\d)]", body)
    if match is None:
        raise Unreadable(f"{text[:60]!r} does not begin with a number.")
    value = read(match[0])
    if not (value.is_number and value.is_finite):
        raise Unreadable(f"{text[:60]!r} is no number.")
    return float(value), body[match.end() :].strip()


def judge(question: Number, given: Given, answer: Encoded) -> Verdict:
    """Grade an encoded answer to a number question."""
    asked = parse(question.unit)
    try:
        value, written = _value(answer, asked)
    except (Unreadable, UnknownUnit) as error:
        return refused(f"{error} {expected(question.unit)}")
    except OverflowError:
        return refused("This number is larger than any answer of the course.")
    if not math.isfinite(value):
        return refused(f"The answer must be finite. {expected(question.unit)}")
    if written is not None:
        if not written.measures(asked):
            return wrong(f"{explain('other quantity')} {expected(question.unit)}", "other quantity")
        value *= written.factor / asked.factor
    target = float(question.answer(given))
    if close(value, target, question.relative, question.absolute):
        return right()
    return _diagnose(question, given, value, target, written)


def expected(unit: str) -> str:
    """The sentence that says which unit is asked for."""
    return "A plain number is expected." if unit in ("", "1") else f"The unit expected is {unit}."


def _value(answer: Encoded, asked: Written) -> tuple[float, Written | None]:
    if answer["kind"] == "number":
        return float(answer["value"]), None
    if answer["kind"] == "text":
        value, unit = quantity(answer["text"])
        if not unit:
            return value, None
        words = unit.split() or [""]
        if words[0] in _SCALES and (not asked.dimension or len(words[0]) > 1):
            value, unit = value * _SCALES[words[0]], " ".join(words[1:])
        return value, parse(unit) if unit else None
    if answer["kind"] == "refused":
        raise Unreadable(answer["why"])
    forms = {"sequence": "several values", "mapping": "a dictionary", "function": "a function"}
    raise Unreadable(f"One number is asked for, not {forms.get(answer['kind'], 'this')}.")


def _diagnose(question: Number, given: Given, value: float, target: float, written: Written | None) -> Verdict:
    relative = min(question.relative, 0.02)
    for mistake in question.mistakes:
        if close(value, float(mistake.value(given)), relative, question.absolute):
            return wrong(f"{mistake.sentence()} {expected(question.unit)}", mistake.name)
    if target and close(value, -target, relative):
        return wrong(f"{explain('sign')} {expected(question.unit)}", "sign")
    asked = parse(question.unit)
    others = list(alternatives(question.unit)) if target else []
    for text, unit, name in others:
        if written is None and close(value * unit.factor / asked.factor, target, relative):
            other = "as a share of 1" if text == "1" else f"in {text}"
            return wrong(f"That is the right quantity {other}. {expected(question.unit)}", name)
    if written is not None and target:
        bare = value * asked.factor / written.factor
        for text, unit in ((question.unit, asked), *((text, unit) for text, unit, _ in others)):
            if close(bare * unit.factor / asked.factor, target, relative):
                other = "as a share of 1" if text == "1" else f"in {text}"
                said = f"The number is right {other}, but {written.text} is written beside it."
                return wrong(f"{said} {expected(question.unit)}", mixed(written, unit))
    if target and value / target > 0:
        power = math.log10(value / target)
        if abs(power) > 0.5 and close(value / 10 ** round(power), target, relative):
            return wrong(f"{explain('wrong power of ten')} {expected(question.unit)}", "wrong power of ten")
    return wrong(f"{_off(question, value, target)} {expected(question.unit)}")


def _off(question: Number, value: float, target: float) -> str:
    """What is said of a value that no known mistake leads to; never on which side of the answer it lies."""
    if not (target and close(value, target, NEAR)):
        return "The value is off."
    allowed = max(question.relative, question.absolute / abs(target))
    return f"Close: it is accepted within {100 * allowed:.2g} %." if allowed > 1e-4 else "Close; it must be exact."

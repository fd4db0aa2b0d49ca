"""Units as people write them: `GB/s`, `TFLOP`, `GPU-hours`, `%`; read, compared, and swapped for the usual wrong ones.

The library computes in base units alone (`course.units`); only answers need prefixes.

>>> parse("GiB").factor, parse("Gbit/s").factor
(1073741824.0, 125000000.0)
>>> parse("GB").dimension == parse("Mbit").dimension
True
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["UnknownUnit", "Written", "alternatives", "mixed", "parse"]

_DECIMAL = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21, "Y": 1e24}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}
_SMALL = {"m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}

_WORDS: dict[str, tuple[str, float]] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), ("s", 1.0)),
    **dict.fromkeys(("min", "minute", "minutes"), ("s", 60.0)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), ("s", 3600.0)),
    **dict.fromkeys(("d", "day", "days"), ("s", 86400.0)),
    **dict.fromkeys(("week", "weeks"), ("s", 7 * 86400.0)),
    **dict.fromkeys(("year", "years"), ("s", 365.25 * 86400.0)),
    **dict.fromkeys(
        ("gpu", "gpus", "device", "devices", "accelerator", "accelerators", "chip", "chips", "tpu", "tpus", "rank",
         "ranks"), ("device", 1.0)),
    **dict.fromkeys(("token", "tokens", "tok"), ("token", 1.0)),
    **dict.fromkeys(("sequence", "sequences"), ("sequence", 1.0)),
    **dict.fromkeys(("$", "usd", "eur", "dollar", "dollars", "currency"), ("currency", 1.0)),
    **dict.fromkeys(("%", "percent"), ("", 0.01)),
    **dict.fromkeys(("1", "x", "times", "share", "parameter", "parameters", "params", "step", "steps"), ("", 1.0)),
}  # fmt: skip
_BYTE_WORDS = {"byte", "bytes", "Byte", "Bytes"}
_BIT_WORDS = {"bit", "bits", "Bit", "Bits"}
_SMALL_BINARY = {f"{prefix.lower()}b": factor for prefix, factor in _BINARY.items()}
_TIMES = ("ms", "s", "min", "hours", "days")


class UnknownUnit(ValueError):
    """A word that is no unit; the message is a sentence."""


@dataclass(frozen=True)
class Written:
    """A unit as written: `factor` turns a number in it into base units; `dimension` is sorted (base, power) pairs."""

    text: str
    dimension: tuple[tuple[str, int], ...]
    factor: float

    @property
    def per_device(self) -> bool:
        """Whether devices stand in it; an answer may leave them out."""
        return any(base == "device" for base, _ in self.dimension)

    def measures(self, other: Written) -> bool:
        """Whether both measure one quantity; devices may be left out, and `FLOPs` stands for FLOP and FLOP/s alike.

        >>> [parse(text).measures(parse("TFLOP/s")) for text in ("TFLOPs", "TFLOPS", "TFLOP", "TB/s")]
        [True, True, False, False]
        """
        if self._plain() == other._plain():
            return True
        # A table headed "TFLOPs" means a rate as often as an amount; "TFLOP" and "TFLOP/s" mean what they say.
        return self._ambiguous() and other._plain() in ((("FLOP", 1),), (("FLOP", 1), ("s", -1)))

    def _plain(self) -> tuple[tuple[str, int], ...]:
        return tuple(pair for pair in self.dimension if pair[0] != "device")

    def _ambiguous(self) -> bool:
        return re.fullmatch(r"[A-Za-z -]*(?:FLOPs|FLOPS|flops)", self.text.strip()) is not None


def _word(word: str) -> tuple[str, int, float, bool]:
    """Base, its power, factor, and whether a hidden `/s` follows (FLOPS)."""
    if word in _WORDS or word.lower() in _WORDS:
        base, factor = _WORDS.get(word) or _WORDS[word.lower()]
        return base, 1 if base else 0, factor, False
    for names, factor in ((_BYTE_WORDS, 1.0), (_BIT_WORDS, 1 / 8)):
        for name in names:
            if word.endswith(name) and (scale := _prefix(word.removesuffix(name), loose=True)):
                return "byte", 1, scale * factor, False
    if (match := re.fullmatch(r"(.*?)(flops?|flop)", word, re.IGNORECASE)) and (scale := _prefix(match[1], loose=True)):
        return "FLOP", 1, scale, match[2] == "FLOPS"
    if word.endswith("s") and word[:-1] in _SMALL:
        return "s", 1, _SMALL[word[:-1]], False
    if (match := re.fullmatch(r"(.*?)(tokens?|tok)", word)) and (scale := _prefix(match[1], loose=False)):
        return "token", 1, scale, False
    if word.lower() in _SMALL_BINARY:
        return "byte", 1, _SMALL_BINARY[word.lower()], False
    if word.endswith("B") and (scale := _prefix(word[:-1], loose=False)):
        return "byte", 1, scale, False
    if word.endswith("b") and (scale := _prefix(word[:-1], loose=True)):
        # `Gb` are bits; all in small letters, people mean bytes
        return "byte", 1, scale if word.islower() and len(word) == 2 else scale / 8, False
    raise UnknownUnit(f"{word!r} is no unit that is known here.")


_PREFIX_WORDS = {"kilo": 1e3, "mega": 1e6, "giga": 1e9, "tera": 1e12, "peta": 1e15, "exa": 1e18}
_PREFIX_WORDS |= {"kibi": 2.0**10, "mebi": 2.0**20, "gibi": 2.0**30, "tebi": 2.0**40}


def _prefix(text: str, loose: bool) -> float | None:
    text = text.rstrip("- ")
    if text in _DECIMAL or text in _BINARY:
        return _DECIMAL.get(text) or _BINARY[text]
    if text.lower() in _PREFIX_WORDS:
        return _PREFIX_WORDS[text.lower()]
    return _DECIMAL.get(text.upper()) if loose and text.upper() in _DECIMAL else None


@lru_cache(maxsize=1000)
def parse(text: str) -> Written:
    """Read a unit such as `"TFLOP/s"`, `"GPU-hours"`, `"bytes per token"`, `"%"`; `""` and `"1"` are no unit.

    Raises:
        UnknownUnit: a part of it is no unit.
    """
    powers: dict[str, int] = {}
    factor, sign = 1.0, 1
    spaced = re.sub(r"\bper\b", "/", text.strip())
    for part in re.findall(r"/|[·*×\-\s]+|\(|\)|[^/·*×\-\s()]+", spaced):
        if part == "/":
            sign = -1
            continue
        if part in "()" or not part.strip("·*×- \t\n"):
            continue
        word, _, power = part.replace("²", "^2").partition("^")
        base, count, scale, hidden = _word(word)
        exponent = sign * (int(power) if power.isdigit() else 1)
        if base:
            powers[base] = powers.get(base, 0) + exponent * count
        factor *= scale**exponent
        if hidden:
            powers["s"] = powers.get("s", 0) - exponent
    return Written(text, tuple(sorted((b, e) for b, e in powers.items() if e)), factor)


def alternatives(text: str) -> Iterator[tuple[str, Written, str]]:
    """The other units a number asked in `text` is often given in: the text, the unit, the mistake's name.

    >>> [other for other, _, name in alternatives("GB") if name == "GiB for GB"]
    ['GiB']
    """
    head, slash, tail = text.partition("/")
    base, _, factor, _ = _word(re.split(r"[·*×\-\s]+", head)[-1]) if head.strip() else ("", 0, 1.0, False)
    own = parse(text)

    def swapped(word: str) -> str:
        return re.sub(r"[^·*×\-\s]+$", word, head) + slash + tail

    if base == "byte":
        for prefix in ("", "k", "M", "G", "T", "P"):
            yield from _one(swapped(f"{prefix}B" if prefix else "bytes"), own, "wrong prefix")
            if prefix in "MGT" and prefix:
                scale = _DECIMAL[prefix]
                near = max(factor, scale) / min(factor, scale) < 1.2  # the same prefix, binary against decimal
                yield from _one(swapped(f"{prefix}iB"), own, "GiB for GB" if near else "wrong prefix")
            yield from _one(swapped(f"{prefix}bit" if prefix else "bits"), own, "bits for bytes")
    elif base in ("FLOP", "token"):
        for prefix in _DECIMAL:
            if prefix != "K":
                yield from _one(swapped(prefix + base), own, "wrong prefix")
    elif base == "s":
        for word in _TIMES:
            yield from _one(swapped(word), own, "other unit of time")
    elif not own.dimension:
        yield from _one("%" if factor == 1 else "1", own, "percent for share")


def _one(text: str, own: Written, name: str) -> Iterator[tuple[str, Written, str]]:
    other = parse(text)
    if other.dimension == own.dimension and abs(other.factor / own.factor - 1) > 1e-9:
        yield text, other, name


def mixed(one: Written, other: Written) -> str:
    """The name of the mistake that takes one unit for another of the same quantity.

    >>> mixed(parse("GiB"), parse("GB")), mixed(parse("Gbit/s"), parse("MB/s")), mixed(parse("h"), parse("s"))
    ('GiB for GB', 'bits for bytes', 'other unit of time')
    """
    ratio = max(one.factor / other.factor, other.factor / one.factor)
    bases = {base for base, _ in one.dimension}
    if "byte" in bases:
        if any(abs(ratio / 1.024**power - 1) < 1e-9 for power in range(1, 6)):
            return "GiB for GB"
        digits = math.log10(ratio / 8) / 3, math.log10(ratio * 8) / 3
        return "bits for bytes" if any(abs(d - round(d)) < 1e-9 for d in digits) else "wrong prefix"
    if not bases:
        return "percent for share"
    return "other unit of time" if bases <= {"s", "device"} else "wrong prefix"

"""Explorers of step 7, streams: how many buckets, and from which local batch on communication comes out of cover."""

from __future__ import annotations

from typing import Any

import numpy as np

from course import catalog, estimate, overlap, place
from course.errors import UserError
from course.explorers.base import Choice, Explorer, Number, View
from course.explorers.shared import models, powers, share
from course.pictures.place import Curves, Line

__all__ = ["buckets", "buckets_view", "cover", "cover_view"]

WIDTH = 5.8
GIGA, TERA, MILLI, MICRO = 1e9, 1e12, 1e-3, 1e-6
COUNTS = np.arange(1, 1025, dtype=float)
TOKENS = np.array([2 ** (power / 4) for power in range(32, 73)])


def _positive(**numbers: float) -> None:
    for name, value in numbers.items():
        if not value > 0:
            raise UserError(f"{name} must be above 0; it is {value:g}.")


# ---------------------------------------------------------------- buckets
def buckets_view(count: int, gradient_gb: float, bandwidth: float, backward_ms: float, latency_us: float) -> View:
    """What so many buckets leave exposed, beside all other numbers of buckets.

    Args:
        count: buckets of the backward.
        gradient_gb: GB that cross the link in all.
        bandwidth: GB/s of the link, one way.
        backward_ms: backward of the last micro-batch, in ms.
        latency_us: what each bucket pays beside its bytes, in microseconds.
    """
    _positive(gradient_gb=gradient_gb, bandwidth=bandwidth, backward_ms=backward_ms)
    if count < 1 or latency_us < 0:
        raise UserError(f"count must be 1 or more and latency_us 0 or more; they are {count:g} and {latency_us:g}.")
    link = gradient_gb / bandwidth

    def late(number: Any) -> Any:
        return overlap.exposed_reduction(
            buckets=number, compute_per_layer=backward_ms * MILLI / number,
            communication_per_layer=latency_us * MICRO + link / number,
        )  # fmt: skip

    curve = late(COUNTS)
    best = int(COUNTS[int(np.argmin(curve))])
    now, busy = float(late(count)), count * latency_us * MICRO + link
    behind = busy / count > backward_ms * MILLI / count
    return View(
        f"{count:,} buckets: {now / MILLI:.3g} ms of {busy / MILLI:.4g} ms on the link are exposed; "
        f"{'the link falls behind backward' if behind else 'the link keeps up, only the last bucket is late'}.",
        ("buckets", "ms on the link", "exposed ms"),
        tuple((f"{number:,}", f"{(number * latency_us * MICRO + link) / MILLI:.4g}",
               f"{float(late(number)) / MILLI:.3g}")
              for number in sorted({1, 8, 64, int(count), best})),
        {"finding": f"{now / MILLI:.3g} ms exposed; best near {best:,} buckets",
         "curves": {"exposed": Line(COUNTS, curve / MILLI),
                    "all on the link": Line(COUNTS, (COUNTS * latency_us * MICRO + link) / MILLI)},
         "level": (backward_ms, "backward"), "place": (count, f"{count:,} buckets")},
    )  # fmt: skip


def buckets(*, ask: str | None = None, **values: Any) -> Explorer:
    """Exposed time against the number of buckets; `ask` is guessed first, `values` are Reset's."""
    controls = (
        Number("count", "buckets", 16, 1, 1024, whole=True, logarithmic=True),
        Number("gradient_gb", "on the link (GB)", 2.7, 0.1, 100, logarithmic=True),
        Number("bandwidth", "link (GB/s)", 25, 1, 1000, logarithmic=True),
        Number("backward_ms", "backward (ms)", 150, 1, 10000, logarithmic=True),
        Number("latency_us", "latency a bucket (µs)", 1000, 1, 10000, logarithmic=True),
    )
    return Explorer(controls, buckets_view, lambda: Curves("buckets", "ms", WIDTH, 3.9), ask=ask, values=values)


# ---------------------------------------------------------------- the local batch
def cover_view(model: str, tokens: int, ranks: int, bandwidth: float, rate: float, gradient_bytes: int) -> View:
    """What of a step is exposed as the local batch changes, with plain data parallelism and with FSDP.

    Args:
        model: a dense preset.
        tokens: tokens of a device's micro-batch.
        ranks: data-parallel ranks.
        bandwidth: GB/s of a device, one way.
        rate: TFLOP/s that matmuls reach.
        gradient_bytes: bytes a gradient has when it is reduced.
    """
    _positive(tokens=tokens, bandwidth=bandwidth, rate=rate)
    shape = catalog.model(model)
    one = (estimate.count(shape).matmul_active - shape.vocabulary * shape.hidden) / shape.layers
    ring = {"ranks": ranks, "latency": 0.0, "bandwidth": bandwidth * GIGA}
    gather = float(place.ring_all_gather_time(payload_bytes=2 * one, **ring))
    scatter = float(place.ring_all_gather_time(payload_bytes=gradient_bytes * one, **ring))

    def late(number: Any) -> dict[str, Any]:
        forward = 2 * one * number / (rate * TERA)
        back: dict[str, Any] = {"buckets": shape.layers, "compute_per_layer": 2 * forward}
        fsdp = overlap.exposed_gather(buckets=shape.layers, compute_per_layer=forward, communication_per_layer=gather)
        return {
            "data": overlap.exposed_reduction(**back, communication_per_layer=2 * scatter),
            "FSDP": fsdp + overlap.exposed_reduction(**back, communication_per_layer=gather + scatter),
        }

    def compute(number: Any) -> Any:
        return 6 * one * shape.layers * number / (rate * TERA)

    now, curves = late(tokens), late(TOKENS)
    edges = {"data": scatter / (2 * one / (rate * TERA)),
             "FSDP": max(gather / 2, (gather + scatter) / 4) * rate * TERA / one}  # fmt: skip
    took = compute(tokens)
    return View(
        f"{tokens:,} tokens a device: compute takes {took:.3g} s. Exposed with plain data parallelism "
        f"{float(now['data']):.3g} s, {share(float(now['data']), took + float(now['data']))} of the step; with FSDP "
        f"{float(now['FSDP']):.3g} s, {share(float(now['FSDP']), took + float(now['FSDP']))}.",
        ("", "exposed s", "of the step", "covered from (tokens)"),
        tuple((name, f"{float(value):.3g}", share(float(value), took + float(value)), f"{edges[name]:,.0f}")
              for name, value in now.items()),
        {"finding": f"Covered from {edges['data']:,.0f} tokens a device, FSDP from {edges['FSDP']:,.0f}",
         "curves": {"compute": Line(TOKENS, compute(TOKENS)),
                    **{f"exposed, {name}": Line(TOKENS, value) for name, value in curves.items()}},
         "place": (tokens, f"{tokens:,} tokens")},
    )  # fmt: skip


def cover(*, ask: str | None = None, **values: Any) -> Explorer:
    """Exposed time against the local batch; `ask` is guessed first, `values` are Reset's."""
    controls = (
        Choice("model", "model", "llama-3-8b", lambda _: models(dense=True)),
        Number("tokens", "tokens of a micro-batch", 8192, 256, 262144, whole=True, logarithmic=True),
        Choice("ranks", "data-parallel ranks", 1024, dict(list(powers(16384).items())[1:])),
        Number("bandwidth", "link (GB/s a device)", 50, 1, 1000, logarithmic=True),
        Number("rate", "matmuls (TFLOP/s)", 500, 10, 5000, logarithmic=True),
        Choice("gradient_bytes", "gradients (bytes)", 2, {"2": 2, "4": 4}),
    )
    return Explorer(
        controls, cover_view, lambda: Curves("tokens of a device's micro-batch", "seconds a step", WIDTH, 4.1), ask=ask,
        values=values,
    )  # fmt: skip

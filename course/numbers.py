"""Numbers to know by heart, read from the catalog: what you do an estimate with when nothing else is at hand.

`python -m course.numbers docs/numbers.md` writes the page again; notebooks show the same tables.

>>> print(states())
recipe  | weights | gradients | second gradient copy | fp32 master copy | moments | bytes a parameter
bf16-16 | 2       | 2         | 0                    | 4                | 8       | 16
bf16-18 | 2       | 4         | 0                    | 4                | 8       | 18
bf16-20 | 2       | 2         | 4                    | 4                | 8       | 20
fp32-16 | 4       | 4         | 0                    | 0                | 8       | 16
bf16-8  | 2       | 2         | 0                    | 0                | 4       | 8
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from course import catalog
from course.estimate import count
from course.files import write_atomically

__all__ = ["ACCELERATORS", "FABRICS", "MODELS", "Table", "accelerators", "links", "models", "page", "states", "units"]

ACCELERATORS = (
    "a100-sxm-80gb", "h100-sxm", "h200-sxm", "b200-sxm", "gb200", "mi300x", "tpu-v5e", "tpu-v5p", "tpu-v6e",
)  # fmt: skip
MODELS = (
    "gpt2", "llama-3.2-1b", "llama-2-7b", "llama-3-8b", "mixtral-8x7b", "llama-2-70b", "llama-3-70b", "gpt3-175b",
    "llama-3.1-405b", "megatron-530b",
)  # fmt: skip
FABRICS = ("a100-ib200", "h100-ib400", "b200-ib400", "gb200-nvl72", "tpu-v5e", "tpu-v5p")


@dataclass(frozen=True)
class Table:
    """Rows of text under headings: plain in a terminal, Markdown in a notebook."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        lines = (self.headings, *self.rows)
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.headings))]
        text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join(line.rstrip() for line in text)

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        lines = (self.headings, ("---",) * len(self.headings), *self.rows)
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def accelerators(names: Sequence[str] = ACCELERATORS) -> Table:
    """What one device can do: dense bf16 peak, memory bandwidth, their ratio (the ridge point), memory.

    >>> print(accelerators(["h100-sxm"]))
    device         | dense bf16 peak (TFLOP/s) | memory bandwidth (TB/s) | ridge point (FLOP/byte) | memory (GiB)
    H100 SXM 80 GB | 989                       | 3.35                    | 295                     | 79.6
    """
    rows = []
    for name in names:
        one = catalog.accelerator(name)
        peak, bandwidth = one.peak_flops_per_s, one.memory_bytes_per_s
        rows.append((
            one.name, f"{peak / 1e12:,.0f}", f"{bandwidth / 1e12:.3g}", f"{peak / bandwidth:.0f}",
            f"{one.memory_bytes / 2**30:.1f}",
        ))  # fmt: skip
    headings = (
        "device", "dense bf16 peak (TFLOP/s)", "memory bandwidth (TB/s)", "ridge point (FLOP/byte)", "memory (GiB)",
    )  # fmt: skip
    return Table(headings, tuple(rows))


def links(names: Sequence[str] = FABRICS) -> Table:
    """What one device sends to others: one-way bytes a second, inside its fast domain and over the network.

    >>> links(["h100-ib400"]).rows
    (('8 x H100 a node, 400 Gb/s InfiniBand a device', '8', '450', '50'),)
    """
    headings = ("cluster", "devices joined by the fast link", "fast link (GB/s)", "network (GB/s)")
    rows = []
    for name in names:
        one = catalog.fabric(name)
        rates = (one.scale_up_bytes_per_s, one.scale_out_bytes_per_s)
        rows.append((one.name, f"{one.node_size:,}", *(f"{rate / 1e9:.4g}" for rate in rates)))
    return Table(headings, tuple(rows))


def models(names: Sequence[str] = MODELS) -> Table:
    """Shapes and parameters of known models; of a mixture, all parameters and those one token uses.

    >>> models(["mixtral-8x7b"]).rows
    (('mixtral-8x7b', '32', '4,096', '32 (8)', '14,336', '32,000', '46.7', '12.88'),)
    """
    headings = (
        "model", "layers", "hidden", "heads (key/value)", "feed-forward", "vocabulary", "parameters (billion)",
        "used by a token",
    )  # fmt: skip
    rows = []
    for name in names:
        one = catalog.model(name)
        counted = count(one)
        rows.append((
            one.name, str(one.layers), f"{one.hidden:,}", f"{one.heads} ({one.kv_heads})", f"{one.ffn:,}",
            f"{one.vocabulary:,}", f"{counted.total / 1e9:.4g}", f"{counted.active / 1e9:.4g}",
        ))  # fmt: skip
    return Table(headings, tuple(rows))


def states() -> Table:
    """Bytes a parameter takes while it is trained, by parts, for each recipe of the catalog."""
    headings = (
        "recipe", "weights", "gradients", "second gradient copy", "fp32 master copy", "moments", "bytes a parameter",
    )  # fmt: skip
    recipes = [catalog.state(name) for name in catalog.names("states")]
    parts = ("weights", "gradients", "extra_gradients", "master", "moments", "total")
    return Table(headings, tuple((one.id, *(str(getattr(one, part)) for part in parts)) for one in recipes))


def units() -> Table:
    """Conversions that estimates stumble over.

    >>> units().rows[0]
    ('1 day', '86,400 s')
    """
    day = 24 * 3600
    rows = (
        ("1 day", f"{day:,} s"),
        ("1 year", f"{365.25 * day:.3g} s"),
        ("1 GiB", f"{2**30 / 1e9:.4g} GB"),
        ("1 GB/s", "8 Gb/s: networks are sold in bits"),
        ("bf16, fp16", f"{16 // 8} bytes a number"),
        ("fp32", f"{32 // 8} bytes a number"),
        ("1 PFLOP/s for a day", f"{1e15 * day:.3g} FLOP"),
    )
    return Table(("this", "is"), rows)


def page() -> str:
    """The whole page as Markdown."""
    parts = (
        (
            "One device", accelerators(),
            "Peaks are dense: sheets that print twice as much count a sparsity nobody trains with. The ridge point is "
            "peak over bandwidth: an operation that does fewer FLOPs for each byte it moves is bound by memory. "
            "Vendors' GB of memory are GiB, and a little of them is taken before you start.",
        ),
        (
            "Links", links(),
            "One way, for one device. Vendors print both directions together, or bits, or a whole node. On a torus "
            "(TPU) the rate is that of all links of a chip at once.",
        ),
        (
            "Models", models(),
            "Every tensor once. The two counts differ only in a mixture of experts; the second one includes the input "
            "table.",
        ),
        (
            "Bytes a parameter", states(),
            "Model state is the sum of visible parts: ask a report which ones it holds before you compare.",
        ),
        ("Units", units(), "GB, TB and TFLOP are decimal; GiB is 2^30 bytes."),
    )  # fmt: skip
    body = "\n\n".join(f"## {title}\n\n{note}\n\n{table._repr_markdown_()}" for title, table, note in parts)
    intro = (
        "Written by `python -m course.numbers docs/numbers.md` from the catalog, which names the source and date of\n"
        "every figure (`course show accelerators h100-sxm`)."
    )
    return f"# Numbers to know by heart\n\n{intro}\n\n{body}\n"


if __name__ == "__main__":
    write_atomically(Path(sys.argv[1]), page().encode())

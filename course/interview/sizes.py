"""Questions as people meet them: which model on which devices, how many, how long a sequence, how large a batch.

Each row is a family of runs that somebody has trained or fine-tuned at about this size; the generator picks from it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CLUSTERS", "EXPERTS", "LONG", "ORDINARY", "TOO_FEW", "Size"]


@dataclass(frozen=True)
class Size:
    """One family: models, device counts, sequence lengths, millions of tokens a step, billions of tokens in all."""

    models: tuple[str, ...]
    devices: tuple[int, ...]
    sequences: tuple[int, ...]
    batch_millions: tuple[float, ...]
    billions: tuple[int, ...]


CLUSTERS = {
    "a100-sxm-80gb": "a100-ib200", "h100-sxm": "h100-ib400", "h200-sxm": "h200-ib400", "b200-sxm": "b200-ib400",
    "mi300x": "mi300x-ib400",
}  # fmt: skip
"""Accelerator -> the fabric it is sold with."""

ORDINARY = {
    1: (
        Size(("llama-3.1-8b", "qwen3-8b", "olmo-2-7b"), (8, 16, 32, 64), (4096, 8192), (0.5, 1, 2), (50, 100, 300)),
        Size(("llama-2-13b", "phi-4"), (16, 32, 64), (4096,), (1, 2), (50, 100, 200)),
    ),
    2: (
        Size(("llama-3.1-70b", "qwen2.5-72b", "llama-2-70b"), (128, 256, 512, 1024), (4096, 8192), (2, 4),
             (300, 1000, 2000)),
        Size(("qwen3-32b", "olmo-2-32b"), (64, 128, 256, 512), (4096, 8192), (2, 4), (300, 1000)),
    ),
    3: (
        Size(("llama-3.1-405b",), (2048, 4096, 8192, 16384), (8192,), (8, 16), (2000, 5000, 15000)),
        Size(("nemotron-4-340b", "gpt3-175b"), (1024, 1536, 3072), (4096,), (4, 8), (1000, 3000)),
        Size(("llama-3.1-70b",), (1024, 2048, 4096), (8192,), (4, 8), (5000, 15000)),
    ),
}  # fmt: skip
"""Level -> dense models at ordinary lengths."""

LONG = {
    1: (Size(("llama-3.1-8b", "qwen3-8b"), (16, 32, 64), (32768, 65536), (1, 2), (5, 20)),),
    2: (Size(("llama-3.1-70b", "qwen3-32b"), (128, 256, 512), (32768, 65536, 131072), (4, 8), (20, 100)),),
    3: (Size(("llama-3.1-405b",), (2048, 4096, 8192), (65536, 131072), (8, 16), (100, 800)),),
}
"""Level -> the last stage of a training, on long sequences: few tokens, few sequences a step."""

EXPERTS = {
    1: (Size(("qwen3-30b-a3b",), (16, 32, 64), (4096,), (1, 2), (50, 200)),),
    2: (Size(("mixtral-8x7b",), (64, 128, 256, 512), (4096, 8192), (2, 4), (300, 1000)),),
    3: (Size(("deepseek-v3",), (512, 1024, 2048), (4096,), (16, 32), (2000, 8000)),),
}
"""Level -> mixtures of experts."""

TOO_FEW = {
    1: (Size(("llama-2-13b", "phi-4"), (2, 4), (4096,), (0.5, 1), (3, 6)),),
    2: (Size(("llama-3.1-70b", "qwen2.5-72b"), (8, 16), (4096, 8192), (1, 2), (50, 100)),),
    3: (Size(("llama-3.1-405b",), (64, 128), (8192,), (4, 8), (100, 300)),),
}
"""Level -> fewer devices than the model state alone needs, once half of their memory is gone."""

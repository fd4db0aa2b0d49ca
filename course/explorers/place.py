"""The explorers of step 4: `chunks`, `collective`, `ranks`, `bounds` and `mix`.

Each has a `…_view` function, values in, sentence, table and picture data out; the widgets around it are the frame's.
"""

from __future__ import annotations

from course.explorers.place_axes import bounds, bounds_view, legal_degrees, mix, mix_view, mixed_times
from course.explorers.place_links import (
    chunk_panel,
    chunk_states,
    chunks,
    chunks_view,
    collective,
    collective_view,
    rank_panel,
    ranks,
    ranks_view,
)

__all__ = [
    "bounds", "bounds_view", "chunk_panel", "chunk_states", "chunks", "chunks_view", "collective", "collective_view",
    "legal_degrees", "mix", "mix_view", "mixed_times", "rank_panel", "ranks", "ranks_view",
]  # fmt: skip

"""The explorers of step 7: `buckets`, `cover`, `critical` and `tails`.

Each has a `…_view` function, values in, sentence, table and picture data out; the widgets around it are the frame's.
"""

from __future__ import annotations

from course.explorers.overlap_ranks import critical, critical_view, tails, tails_view
from course.explorers.overlap_streams import buckets, buckets_view, cover, cover_view

__all__ = [
    "buckets", "buckets_view", "cover", "cover_view", "critical", "critical_view", "tails", "tails_view",
]  # fmt: skip

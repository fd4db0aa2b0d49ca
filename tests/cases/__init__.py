"""Questions people asked, answered with the course's formulas; a module for each kind."""

from __future__ import annotations

from cases import communication, flops, legality, memory, pipelines, roofline, scaling

__all__ = ["communication", "flops", "legality", "memory", "pipelines", "roofline", "scaling"]

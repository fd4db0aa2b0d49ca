"""The printed pack of a workshop: cheat sheet, glossary, worksheets and projector figures, made from the course itself.

`python -m course.printed docs/workshop` writes them. Formulas, symbols, steps and pictures are the objects that the
notebooks show, so paper and screen cannot differ. Nothing here computes.
"""

from __future__ import annotations

__all__ = ["PRODUCTS"]

PRODUCTS = ("cheat-sheet", "glossary", "worksheets", "figures")
"""The files, each `NAME.pdf`; the module that makes one has its name, with `_` for `-`."""

"""Three hundred interviews: the reference is right everywhere, planted mistakes are marked where they were made.

Run by hand: `python tests/benchmarks/interview.py [FIRST] [HOW MANY] [SHARE]`, from the root of the repository; about
ten minutes. FIRST is the first seed, SHARE the share of the kinds planted into each interview.
Exit code 1 where a promise is broken.
"""

from __future__ import annotations

import sys
import time
from importlib import import_module
from pathlib import Path

from course.interview import generate, grade, reference, study

TESTS = str(Path(__file__).resolve().parents[1])


def main(first: int, interviews: int, share: float) -> int:
    """Print what was found; 0 when all promises hold."""
    sys.path.insert(0, TESTS)
    planted = import_module("planted")
    counts, wrong, nothing_fits, slowest, impossible = planted.Counts(), [], 0, 0.0, 0
    started = time.perf_counter()
    for seed in range(first, first + interviews):
        prompt = generate(seed)
        sheet = reference(prompt)
        before = time.process_time()
        result = grade(prompt, sheet, prompt.withheld)
        slowest = max(slowest, time.process_time() - before)
        if result.score < 1 or any(step.mistakes for step in result.steps):
            wrong.append(seed)
        nothing_fits += not study(prompt).feasible
        impossible += sheet["mfu"].get("verdict") == "impossible"
        planted.count(range(seed, seed + 1), share, into=counts)
    print("\n".join(counts.lines()))
    for example in counts.examples[:20]:
        print(example)
    print(f"{interviews} interviews; on {nothing_fits} nothing fits, on {impossible} no layout could meet the goal")
    print(f"reference sheets below full marks: {wrong or 'none'}; slowest graded in {slowest:.2f} s of CPU")
    print(f"{time.perf_counter() - started:.0f} s in all")
    return int(bool(wrong) or counts.caught < 0.95 or counts.quiet < 0.95)


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:]] + [0, 300, 1.0][len(sys.argv) - 1 :]
    sys.exit(main(int(given[0]), int(given[1]), given[2]))

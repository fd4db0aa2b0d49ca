"""One source, two notebooks: the solved one is right everywhere, the learner's runs and has answered nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course import authoring
from course.grading import exercise

SOURCE = '''---
jupytext:
  text_representation:
    format_name: myst
---

# Exercises

```{code-cell} ipython3
from course.grading import check, hint
```

{{question demo.1}}

```{code-cell} ipython3
:tags: [solution]

numbers = 7e9
answer = f"{2 * numbers / 1e9} GB"
check("demo.1", answer)
```

+++ {"tags": ["solution-only"]}

Two bytes each.

```{code-cell} ipython3
:tags: [solution]

import numpy as np
def times(x, y):
    """x times y."""
    return np.multiply(x, y)
check("demo.3", times)
```

```{code-cell} ipython3
:tags: [solution]

choice = ("b", 2)
check("demo.4", choice)
```

```{code-cell} ipython3
:tags: [stub]

choice = (None, None)  # a letter and a number
check("demo.4", choice)
```

```{code-cell} ipython3
:tags: [solution-only]

assert choice[0] == "b"
```
'''


def write(folder: Path, text: str = SOURCE, name: str = "01_demo.md") -> Path:
    source = folder / "solutions" / name
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(text, encoding="utf-8")
    return source


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    folder = tmp_path_factory.mktemp("built")
    paths = authoring.build(write(folder))
    assert [path.relative_to(folder).as_posix() for path in paths] == [
        "solutions/01_demo.ipynb",
        "exercises/01_demo.ipynb",
    ]
    assert authoring.orphans(folder) == []
    (folder / "solutions" / "01_demo.md").unlink()
    assert [path.name for path in authoring.orphans(folder)] == ["01_demo.ipynb"] * 2
    return {path.parent.name: json.loads(path.read_text()) for path in paths}


def sources(book: dict) -> list[str]:
    return ["".join(cell["source"]) for cell in book["cells"]]


def shown(book: dict) -> list[str]:
    outputs = [out for cell in book["cells"] for out in cell.get("outputs", ())]
    return ["".join(out["data"]["text/plain"]) for out in outputs if "data" in out]


def test_the_solved_notebook_is_right_everywhere(built: dict[str, dict]):
    book = built["solutions"]
    assert shown(book) == ["demo.1: right.", "demo.3: right.", "demo.4: right."]
    assert "choice = (None, None)" not in "".join(sources(book))


def test_the_learners_notebook_runs_and_has_answered_nothing(built: dict[str, dict]):
    book = built["exercises"]
    assert shown(book) == [f"demo.{n}: not answered yet." for n in (1, 3, 4)]
    assert sources(book)[3:] == [
        'answer = None  # your answer\ncheck("demo.1", answer)',
        'import numpy as np\ndef times(x, y):\n    """x times y."""\n    ...  # your answer\ncheck("demo.3", times)',
        'choice = (None, None)  # a letter and a number\ncheck("demo.4", choice)',
    ]
    assert "Two bytes each" not in json.dumps(book) and "solution" not in json.dumps(book)


def test_a_question_stands_in_the_text_with_its_numbers(built: dict[str, dict]):
    text = sources(built["exercises"])[2]
    assert text.startswith("**demo.1: Bytes** (easy, about 2 min)\n\n7e+09 numbers of 2 bytes: how many GB? Unit: GB.")
    assert 'hint("demo.1")' in text


def test_every_code_cell_was_run(built: dict[str, dict]):
    for book in built.values():
        assert all(cell["execution_count"] for cell in book["cells"] if cell["cell_type"] == "code")


@pytest.mark.parametrize(
    ("code", "tag", "said"),
    [
        ('answer = 13\ncheck("demo.1", answer)', "solution", "the check of demo.1 is wrong, where right is wanted"),
        (
            'answer = None\ncheck("demo.1", answer)',
            "solution",
            "the check of demo.1 is unanswered, where right is wanted",
        ),
        ('answer = 14\ncheck("demo.99", answer)', "solution", "the check of demo.99 is error, where right is wanted"),
        ('check("demo.1", 14)', "solution", "Give the answer a name"),
        ("x = 3", "solution", "checks nothing"),
        ('answer = 14\ncheck("demo.1", answer)', "keep", "the check of demo.1 is right, where unanswered is wanted"),
    ],
)
def test_a_source_that_breaks_the_rules_is_not_built(tmp_path: Path, code: str, tag: str, said: str):
    head = SOURCE[: SOURCE.index("{{question")]
    source = write(tmp_path, f"{head}```{{code-cell}} ipython3\n:tags: [{tag}]\n\n{code}\n```\n")
    with pytest.raises(authoring.BuildError) as failed:
        authoring.build(source)
    assert said in str(failed.value)
    assert not source.with_suffix(".ipynb").exists()


def test_a_question_that_does_not_exist_is_named(tmp_path: Path):
    with pytest.raises(authoring.BuildError, match=r"no question 'demo\.99'"):
        authoring.read(write(tmp_path, "{{question demo.99}}\n"))


def test_stubs():
    assert exercise.stub('def f(a, *, b=2) -> float:\n    return a + b\n\ncheck("demo.3", f)') == (
        'def f(a, *, b=2) -> float:\n    ...  # your answer\ncheck("demo.3", f)'
    )
    both = 'a = 1\nb = a + 1\ncheck("demo.1", a)\ncheck("demo.8", b, seed=2)'
    assert (
        exercise.stub(both)
        == 'a = None  # your answer\ncheck("demo.1", a)\nb = None  # your answer\ncheck("demo.8", b, seed=2)'
    )

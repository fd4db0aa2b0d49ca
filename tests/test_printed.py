"""The printed pack is what the course makes today: its formulas, its words, its pages, and no letter over the edge."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import matplotlib
import pytest
from matplotlib.text import Text

from course.formulas import find, formulas
from course.interview.sheet import SHEET
from course.printed import PRODUCTS, cheat_sheet, figures, glossary, worksheets
from course.printed.__main__ import main
from course.printed.notation import notation
from course.printed.pages import HEIGHT, POINTS, WIDTH, Page, measured, on_paper, save
from course.printed.spine import SPINE, STEPS
from course.printed.terms import TERMS
from course.symbols import SYMBOLS

ROOT = Path(__file__).resolve().parent.parent
PACK = ROOT / "docs" / "workshop"
A4, LETTER = (210 / 25.4 * 72, 297 / 25.4 * 72), (8.5 * 72, 11 * 72)
MOST_BYTES = 300_000
ROWS = [row for rows in SPINE.values() for row in rows]


@pytest.fixture(scope="module")
def paper() -> dict[str, list[Page]]:
    return {"cheat-sheet": [cheat_sheet.page()], "glossary": glossary.pages(), "worksheets": worksheets.pages()}


def words(pages: list[Page]) -> str:
    return "\n".join(text for page in pages for _, _, text in page.texts)


# ---------------------------------------------------------------- the files
def contents(pdf: bytes) -> list[bytes]:
    """The streams of a PDF as they were before compression, so that another zlib may make the same file."""
    return [
        zlib.decompress(stream) if stream[:1] == b"x" else stream
        for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL)
    ]


def stored(name: str) -> bytes:
    """The file in the docs, where this Matplotlib drew it; another may place letters otherwise."""
    data = (PACK / f"{name}.pdf").read_bytes()
    drawn_by = re.search(rb"Matplotlib pdf backend v([\d.]+)", data)
    assert drawn_by
    if drawn_by[1].decode() != matplotlib.__version__:
        pytest.skip("drawn by another Matplotlib")
    return data


STALE = "run `python -m course.printed docs/workshop`"


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_file_holds_what_the_course_says_today(name: str, paper: dict[str, list[Page]]):
    holds = figures.holds() if name == "figures" else on_paper(paper[name])
    assert holds.encode() in stored(name), STALE


def test_the_sheet_is_drawn_as_it_is_stored(tmp_path: Path, paper: dict[str, list[Page]], monkeypatch):
    monkeypatch.setattr(cheat_sheet, "page", lambda: paper["cheat-sheet"][0])
    assert main([str(tmp_path), "cheat-sheet"]) == 0
    assert contents(stored("cheat-sheet")) == contents((tmp_path / "cheat-sheet.pdf").read_bytes()), STALE


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_file_is_small_and_holds_no_date(name: str):
    data = (PACK / f"{name}.pdf").read_bytes()
    assert len(data) < MOST_BYTES
    assert b"CreationDate" not in data and b"ModDate" not in data


def test_the_pack_is_complete_and_the_guide_names_every_file():
    assert {path.stem for path in PACK.glob("*.pdf")} == set(PRODUCTS)
    guide = (PACK / "guide.md").read_text(encoding="utf-8")
    assert all(f"({name}.pdf)" in guide for name in PRODUCTS)


def test_two_runs_make_the_same_bytes_and_a_changed_word_others(tmp_path: Path):
    files = []
    for number, word in enumerate(("one", "one", "two")):
        page = Page()
        page.text(50, 50, word)
        page.text(50, 80, "$\\dfrac{a}{b}$")
        save([page], tmp_path / f"{number}.pdf", "a title", on_paper([page]))
        files.append((tmp_path / f"{number}.pdf").read_bytes())
    assert files[0] == files[1]
    assert contents(files[0]) != contents(files[2])


def test_an_unknown_product_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(tmp_path), "poster"]) == 2
    assert "cheat-sheet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- pages
def test_paper_fits_on_a4_and_on_letter():
    for across, down in (A4, LETTER):
        assert across - WIDTH > -0.5
        assert down - HEIGHT > -0.5


def faults(page: Page) -> list[str]:
    """Texts that leave the page, and pairs that run into each other."""
    boxes = []
    for text in page.figure.findobj(Text):
        if not text.get_text().strip():
            continue
        across, above, below = measured(text.get_text(), text.get_fontsize(), text.get_fontweight())
        x, y = text.get_position()
        left = x * page.across - across * {"left": 0, "right": 1}[text.get_ha()]
        base = (1 - y) * page.down
        boxes.append((left, base - above, left + across, base + below, text.get_text()))
    found = [said for left, top, right, bottom, said in boxes
             if left < 28 or right > page.across - 28 or top < 18 or bottom > page.down - 14]  # fmt: skip
    for place, one in enumerate(boxes):
        for other in boxes[place + 1 :]:
            wide = min(one[2], other[2]) - max(one[0], other[0])
            tall = min(one[3], other[3]) - max(one[1], other[1])
            if wide > 0.5 and tall > 1.0:
                found.append(f"{one[4]} / {other[4]}")
    return found


def test_no_text_leaves_its_page_or_runs_into_another(paper: dict[str, list[Page]]):
    assert {name: [faults(page) for page in pages if faults(page)] for name, pages in paper.items()} == {
        name: [] for name in paper
    }


def test_a_planted_fault_of_a_page_is_found():
    page = Page()
    page.text(100, 100, "a line of words")
    page.text(100, 130, "far beyond the right edge of the page " * 4)
    page.text(140, 103, "another line")
    page.text(100, 160, "$\\dfrac{a}{b}$")
    page.text(100, 168, "under a fraction")
    assert len(faults(page)) == 3


def test_the_sheet_is_one_page(paper: dict[str, list[Page]]):
    assert len(paper["cheat-sheet"]) == 1
    assert len(re.findall(rb"/Type /Page\b", (PACK / "cheat-sheet.pdf").read_bytes())) == 1


# ---------------------------------------------------------------- the sheet
def test_the_spine_has_thirty_formulas_of_every_step():
    assert len(ROWS) == len({row.name for row in ROWS}) == 30
    assert list(SPINE) == list(STEPS)
    assert list(STEPS)[:8] == [step.name for step in SHEET]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_formula_of_the_spine_exists_and_its_notebook_shows_it(row):
    assert row.name in formulas()
    text = (ROOT / "notebooks" / f"{row.notebook}.md").read_text(encoding="utf-8")
    assert re.search(rf"\b{row.name.rpartition('.')[2]}\b", text), f"{row.notebook} does not show {row.name}"


BY_HAND = (
    r"$F_{\mathrm{model}} = 6\,P\,S$",
    r"$\mathrm{MFU} = \dfrac{F_{\mathrm{model}}}{C\,R\,t}$",
    r"$S_{\mathrm{step}} = B\,D_{p}\,G\,T$",
    r"$b = \dfrac{P_{p} - 1}{M\,v + P_{p} - 1}$",
    r"$E = \dfrac{D_{0}\,t_{0}}{D\,t_{D}}$",
)


@pytest.mark.parametrize("written", BY_HAND)
def test_the_documents_own_formulas_stand_on_the_sheet(written: str, paper: dict[str, list[Page]]):
    assert written in [text for _, _, text in paper["cheat-sheet"][0].texts]


def test_every_letter_of_a_formula_is_explained_on_the_sheet(paper: dict[str, list[Page]]):
    alone = {text for _, _, text in paper["cheat-sheet"][0].texts}
    for row in ROWS:
        for entry in find(row.name).inputs:
            assert f"${notation(entry.symbol.name)}$" in alone, (row.name, entry.key)


# ---------------------------------------------------------------- the glossary and the worksheets
def test_the_glossary_holds_every_symbol_formula_and_word(paper: dict[str, list[Page]]):
    lines = {text for page in paper["glossary"] for _, _, text in page.texts}
    for entry in SYMBOLS.values():
        assert {f"${notation(entry.symbol.name)}$", entry.key} <= lines, entry.key
    assert {name.rpartition(".")[2] for name in formulas()} <= lines
    assert {term.name for term in TERMS} <= lines
    assert len({term.name for term in TERMS}) == len(TERMS)


def test_r_and_d_are_said_to_count_the_same_things(paper: dict[str, list[Page]]):
    assert "R and D count the same things" in words(paper["glossary"])
    assert "R and D count the same things" in words(paper["cheat-sheet"])


def test_the_interviews_sheet_has_every_blank(paper: dict[str, list[Page]]):
    said = " ".join(words(paper["worksheets"][:2]).split())
    for step in SHEET:
        for field in step.fields:
            if field.kind in ("text", "reasons"):
                continue
            assert field.asks in said, (step.name, field.name)


def test_a_worksheet_gives_the_left_side_and_not_the_right(paper: dict[str, list[Page]]):
    sheets = paper["worksheets"][2:]
    assert len(sheets) == len(SPINE)
    for page, rows in zip(sheets, SPINE.values(), strict=True):
        texts = [text for _, _, text in page.texts]
        for row in rows:
            formula = find(row.name)
            assert f"${notation(formula.result)} = $" in texts
        assert not any("frac" in text for text in texts)


# ---------------------------------------------------------------- figures
def test_a_slide_is_16_to_9_with_letters_for_the_back_row():
    assert {step for step, _ in figures.SLIDES} == set(STEPS)
    # two pictures are enough to see the frame; the file's test draws all
    for step, make in figures.SLIDES[:2]:
        slide = figures.slide(step, make())
        page = slide.page  # type: ignore[attr-defined]
        assert page.width / page.height == pytest.approx(16 / 9)
        smallest = min(text.get_fontsize() for text in slide.findobj(Text) if text.get_text().strip())
        assert smallest / POINTS / page.height >= 1 / 40 - 1e-9

"""The house stands as planned: what is tracked, how long a module is, who imports whom, what an import costs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = {".ci", "course", "docs", "exercises", "notebooks", "solutions", "tests"}
LOOSE = {".gitignore", "LICENSE", "README.md", "constraints.txt", "pyproject.toml"}
HEAVY = ("sympy", "numpy", "matplotlib", "ipywidgets", "torch", "jax")


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=ROOT)


def tool(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, cwd=cwd)


def tracked() -> list[Path]:
    """The files of the checkout that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout, so nothing is tracked")
    return [ROOT / name for name in sorted(set(listed.split("\0"))) if name and (ROOT / name).is_file()]


def test_import_is_light_and_quick():
    code = (
        "import sys, time; before = time.perf_counter(); import course; took = time.perf_counter() - before\n"
        f"print(took, *[name for name in {HEAVY} if name in sys.modules])"
    )
    runs = [python(code).stdout.split() for _ in range(3)]
    assert all(len(run) == 1 for run in runs), f"import course loads {runs}"
    assert min(float(run[0]) for run in runs) < 0.1


def test_a_submodule_loads_on_first_use():
    code = "import sys, course; print('course.errors' in sys.modules, 'errors' in dir(course), course.errors.__name__)"
    assert python(code).stdout.split() == ["False", "True", "course.errors"]
    missing = python("import course; course.no_such_room")
    assert "AttributeError: module 'course' has no attribute 'no_such_room'" in missing.stderr


def test_tracked_top_level():
    tops = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert tops <= ROOMS | LOOSE, f"no room for {sorted(tops - ROOMS - LOOSE)}"
    assert tops >= LOOSE


def test_modules_are_short():
    long = {
        str(path.relative_to(ROOT)): lines
        for folder in ("course", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) >= 400
    }
    assert not long


def test_modules_open_with_their_idea():
    silent = [
        str(path.relative_to(ROOT))
        for folder in ("course", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if not path.read_text(encoding="utf-8").startswith(('"""', 'r"""'))
    ]
    assert not silent


# A path of somebody's machine, a file address, a package registry. None of these patterns matches its own text.
PRIVATE = re.compile(
    r"(?<![\w.~}])/(?:home|root|work|opt|Users|mnt|workspace)/\w|[A-Z]:\\Users\\|file:/{3}"
    r"|\bpypi\.(?:org|python)|pythonhosted\.|registry\.npmjs|deb\.debian\.|--(?:extra-)?index-url"
)


@pytest.mark.parametrize("text", ["/" + "home/ann/course", "= '/" + "opt/venv'", "https://" + "pypi" + ".org/simple"])
def test_private_pattern_finds(text: str):
    assert PRIVATE.search(text)


@pytest.mark.parametrize("text", ["/usr/bin/chromium", "notebooks/work/x", "https://example.org/home/page", "opt/venv"])
def test_private_pattern_lets_pass(text: str):
    assert not PRIVATE.search(text)


def test_no_private_text_is_tracked():
    found = []
    for path in tracked():
        data = path.read_bytes()
        if b"\0" in data[:8000]:
            continue
        for number, line in enumerate(data.decode("utf-8").splitlines(), 1):
            # A picture's base64 may hold anything.
            if len(line) < 5000 and (hit := PRIVATE.search(line)):
                found.append(f"{path.relative_to(ROOT)}:{number}: {hit[0]}")
    assert not found


def test_ruff():
    checked = tool("ruff", "check", "--no-cache", ".")
    assert checked.returncode == 0, checked.stdout


def test_ruff_reads_the_notebooks():
    shown = tool("ruff", "check", "--show-files", ".").stdout
    assert "00_start.ipynb" in shown


def test_types():
    checked = tool("mypy")
    assert checked.returncode == 0, checked.stdout


LINT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from importlinter.cli import lint_imports\n"
    "sys.exit(lint_imports(config_filename=sys.argv[2], no_cache=True))"
)


def test_imports_run_one_way():
    checked = python(LINT, str(ROOT), str(ROOT / "pyproject.toml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("estimate", "def late():\n    import course.sweep", "arrows run one way"),
        ("new_room", "import course.errors", "arrows run one way"),
        ("simulators/engine", "import course.formula", "a simulator knows no formula"),
        ("place", "import course.simulators", "leans on its oracle"),
        ("mfu", "import matplotlib.pyplot", "draws nothing"),
        ("place", "import torch", "only the lab imports"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, module: str, line: str, contract: str):
    shutil.copytree(ROOT / "course", tmp_path / "course", ignore=shutil.ignore_patterns("__pycache__", "*.csv"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    package = tmp_path / "course" / module / "__init__.py"
    with (package if package.exists() else package.parent.with_suffix(".py")).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    command = [sys.executable, "-c", LINT, str(tmp_path), str(tmp_path / "pyproject.toml")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path)
    assert checked.returncode == 1
    said = " ".join((checked.stdout + checked.stderr).split())
    assert re.search(rf"{contract}[\w ,]* BROKEN|not listed as layers", said), said


def readme_commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_readme_has_two_commands_and_ci_runs_the_second():
    opens, checks = readme_commands()
    assert "course open" in opens
    assert checks.endswith("-m pytest -n logical --dist worksteal")  # one process a core
    for command in (opens, checks):
        assert "-c constraints.txt" in command
    taken = re.search(r"^command=\$\(grep -e '(.*)' README.md\)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert taken
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if re.search(taken[1], line)] == [checks]


def test_readme_names_only_what_is_there():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in re.findall(r"(?:course|docs|notebooks)/[\w./-]+\.\w+", text):
        assert (ROOT / name).exists(), name


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    return {re.sub(r"[-_.]+", "-", name).lower(): pin for name, _, pin in (line.partition("==") for line in lines)}


def test_every_dependency_is_pinned_within_its_range():
    pinned = pins()
    extras = PROJECT["project"]["optional-dependencies"]
    for line in [*PROJECT["project"]["dependencies"], *extras["test"], *extras["lab"]]:
        requirement = Requirement(line)
        assert requirement.specifier.contains(pinned[requirement.name]), line


def test_no_accelerator_library_is_pinned():
    assert not [name for name in pins() if re.match(r"nvidia|cuda|triton|libtpu", name)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = tool("hatchling", "build", "-t", "wheel", "-d", str(folder))
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


def test_wheel_carries_code_data_and_notebooks(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    here = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "course").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    books = {
        f"course/_material/{path.relative_to(ROOT).as_posix()}"
        for part in ("notebooks", "exercises")
        for path in (ROOT / part).glob("*.ipynb")
    }
    packed = {name for name in names if ".dist-info/" not in name}
    assert "course/_material/notebooks/00_start.ipynb" in books
    assert packed == here | books


def test_open_from_the_wheel(wheel: Path, tmp_path: Path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = "import sys; sys.path.insert(0, sys.argv.pop(1)); from course.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, str(tmp_path / "site"), "open", "mine", "--no-lab"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "mine/notebooks/00_start.ipynb").read_bytes() == (ROOT / "notebooks/00_start.ipynb").read_bytes()
    again = subprocess.run(
        [*command[:4], "build"], capture_output=True, text=True, check=False, timeout=60, cwd=tmp_path
    )
    assert again.returncode == 2
    assert (
        again.stderr == "course build: There is no text source here: `course build` needs a checkout of the course.\n"
    )

"""Whatever a learner's function does, there is one sentence, and this process lives on: forked or fresh."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from course.grading import sandbox
from course.grading.session import Session
from course.grading.source import portable

LINUX = sys.platform == "linux"
WAYS = [
    pytest.param(True, id="forked", marks=pytest.mark.skipif(not LINUX, reason="only Linux forks safely")),
    pytest.param(False, id="fresh"),
]


def loop_for_ever(x, y):
    while True:
        pass


def leave_python(x, y):
    os._exit(0)


def leave_by_exit(x, y):
    sys.exit("bye")


def take_all_memory(x, y):
    return len(bytearray(10**12))


def take_memory_bit_by_bit(x, y):
    kept = []
    while True:
        kept.append(bytearray(10**7))


def call_itself(x, y):
    return call_itself(x, y)


def call_itself_without_a_limit(x, y):
    sys.setrecursionlimit(10**9)

    def inner(n):
        return inner(n + 1)

    return inner(0)


def raise_an_error(x, y):
    return x * undefined_name  # noqa: F821


def return_text(x, y):
    return "14 GB"


def return_nothing(x, y):
    x * y


def return_nan(x, y):
    return x * float("nan")


def return_infinity(x, y):
    return float("inf")


def return_complex(x, y):
    return x * 1j


def return_a_flag(x, y):
    return True


def generate(x, y):
    yield x * y


def return_a_list_of_lists(x, y):
    return [[1, 2], [3]]


def take_three(x, y, z):
    return x * y * z


def kill_the_parent(x, y):
    os.kill(os.getppid(), signal.SIGKILL)
    return x * y


def kill_the_group(x, y):
    os.killpg(0, signal.SIGKILL)


def kill_everything(x, y):
    os.kill(-1, signal.SIGKILL)


def kill_itself(x, y):
    signal.raise_signal(signal.SIGKILL)


def start_a_process(x, y):
    subprocess.Popen(["sleep", "100"])
    return x * y


def start_a_program_and_hide_it(x, y):
    try:
        subprocess.run(["sleep", "100"], check=False)
    except BaseException:
        return x * y


def fork_for_ever(x, y):
    while True:
        os.fork()


def start_a_thread(x, y):
    threading.Thread(target=print).start()
    return x * y


def write_a_file(x, y):
    with open("stolen.txt", "w") as file:  # noqa: PTH123
        file.write("x")
    return x * y


def remove_a_file(x, y):
    os.remove("never.txt")  # noqa: PTH107


def close_everything(x, y):
    os.closerange(0, 1000)
    return x * y


def flood(x, y):
    return np.zeros((400, 400))


def crash_python(x, y):
    import ctypes

    ctypes.string_at(0)


def ignore_interrupts(x, y):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


def sleep_long(x, y):
    time.sleep(1000)


def raise_something_odd(x, y):
    class Odd(BaseException):
        def __str__(self):
            raise Odd

    raise Odd


class Odd:
    def __float__(self):
        os._exit(3)


def return_something_odd(x, y):
    return Odd()


HOSTILE: list[tuple[Callable[..., Any], str]] = [
    (loop_for_ever, "does not come back"),
    (ignore_interrupts, "does not come back"),
    (sleep_long, "does not come back"),
    (leave_python, "ends its process"),
    (leave_by_exit, "leaves the program for x = 0, y = 2 (SystemExit)"),
    (take_all_memory, "more memory than it is allowed"),
    (take_memory_bit_by_bit, "more memory than it is allowed"),
    (call_itself, "calls itself without end"),
    (call_itself_without_a_limit, ""),  # by version: memory runs out, the stack does, or the time
    (raise_an_error, "raises NameError for x = 0, y = 2: name 'undefined_name' is not defined"),
    (return_text, "returns an object of type str"),
    (return_nothing, "is the `return` missing?"),
    (return_nan, "returns NaN"),
    (return_infinity, "returns infinity"),
    (return_complex, "returns a complex"),
    (return_a_flag, "returns an object of type bool"),
    (generate, "returns a generator"),
    (return_a_list_of_lists, "returns an object of type list"),
    (take_three, "cannot be called"),
    (kill_the_parent, "sends a signal to a process"),
    (kill_the_group, "sends a signal to a process"),
    (kill_everything, "sends a signal to a process"),
    (kill_itself, "as the system does when memory runs out"),  # nobody says who sent it
    (start_a_process, "starts a program"),
    (start_a_program_and_hide_it, "starts a program"),
    (fork_for_ever, "starts a process"),
    (start_a_thread, "starts a thread"),
    (write_a_file, "writes a file"),
    (remove_a_file, "removes a file"),
    (close_everything, "ends its process"),
    (flood, "array of 160,000 numbers"),
    (crash_python, "crashes Python itself"),
    (raise_something_odd, "raises Odd"),
    (return_something_odd, ""),
]


@pytest.mark.parametrize("fork", WAYS)
@pytest.mark.parametrize(("function", "said"), HOSTILE, ids=[f.__name__ for f, _ in HOSTILE])
def test_a_hostile_function_gets_one_sentence(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[..., Any],
    said: str,
    fork: bool,
    tmp_path: Any,
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sandbox, "forks", lambda: fork)
    monkeypatch.setattr(sandbox.run, "__defaults__", (1.0, 2**27, True))
    start = time.monotonic()
    result = session.check("demo.3", function)
    assert result.status == "wrong", result
    assert said in result.message
    assert "\n" not in result.message and len(result.message) < 350 and "Traceback" not in result.message
    assert time.monotonic() - start < 20
    assert list(tmp_path.glob("*.txt")) == []
    assert session.check("demo.3", lambda x, y: x * y).status == "right"


@pytest.mark.parametrize("fork", WAYS)
def test_noise_and_a_changed_argument_are_mentioned(
    session: Session, monkeypatch: pytest.MonkeyPatch, fork: bool, capfd: Any
):
    monkeypatch.setattr(sandbox, "forks", lambda: fork)

    def noisy(x, y):
        print("noise " * 1000)
        sys.stderr.write("noise")
        os.write(1, b"noise")
        sys.stdout.close()
        return x * y

    def greedy(x, y):
        x *= y
        return x

    assert "prints as well" in session.check("demo.3", noisy).message
    result = session.check("demo.3", greedy)
    assert result.status == "right" and "changes the array" in result.message
    assert "noise" not in "".join(capfd.readouterr())


def test_a_library_that_was_overwritten_changes_no_answer(session: Session, monkeypatch: pytest.MonkeyPatch):
    from course import estimate

    monkeypatch.setattr(estimate, "six_ps_run", lambda **_: 42.0)
    monkeypatch.setattr(np, "minimum", lambda *_: 42.0)
    monkeypatch.setattr(np, "abs", lambda *_: 0.0)
    monkeypatch.setattr("builtins.abs", lambda *_: 0.0)
    monkeypatch.setattr("math.isclose", lambda *_, **__: True)
    assert session.check("estimate.1", 42.0).status == "wrong"
    assert session.check("estimate.1", 6.3e24).status == "right"
    assert session.check("estimate.6", lambda i, p, b: 42.0 + 0 * i * p * b).status == "wrong"
    assert session.check("estimate.6", lambda i, p, b: (i * b < p) * i * b + (i * b >= p) * p).status == "right"


def test_a_result_that_is_forged_is_read_as_data(session: Session):
    def forge(x, y):
        for number in range(3, 64):
            with contextlib.suppress(OSError):
                os.write(number, b'{"value": {"kind": "number", "value": 0.0}}\n' * 13 + b'{"end": "done"}\n')
        os._exit(0)

    assert session.check("demo.3", forge).status == "wrong"


def test_the_first_failing_input_is_shown(session: Session):
    result = session.check("demo.3", lambda x, y: x * 2 + 0 * y)
    assert "is wrong for x = " in result.message and "y = " in result.message
    assert "The unit expected is byte." in result.message
    assert session.check("demo.3", lambda x, y: -x * y).mistake == "sign"
    assert "array of 3 is expected" in session.check("demo.3", lambda x, y: float(np.sum(x)) * y).message


@pytest.mark.parametrize(
    ("test", "status", "said"),
    [
        ("def t(f):\n    assert f(2) == 4 and f(3) == 6 and f(-1) == -2\n", "right", ""),
        ("def t(f):\n    return f(3) == 6 and f(-1) == -2\n", "right", ""),
        ("def t(f):\n    assert f(2) == 4\n", "wrong", "passes on a faulty version"),
        ("def t(f):\n    assert f(3) == 6\n", "wrong", "below zero"),
        ("def t(f):\n    assert f(2) == 5\n", "wrong", "fails on the correct version"),
        ("def t(f):\n    return False\n", "wrong", "returns False on the correct version"),
        ("def t(f):\n    while True: pass\n", "wrong", "does not come back"),
        ("def t(f):\n    import os; os._exit(0)\n", "wrong", "ends its process"),
        ("def t(f):\n    nonsense\n", "wrong", "raises NameError"),
        ("def t():\n    return 1\n", "wrong", "cannot be called"),
        ("n = 0\ndef t(f):\n    global n\n    n += 1\n    assert n == 1\n", "wrong", "passes on a faulty version"),
    ],
)
def test_a_bug_hunt(session: Session, monkeypatch: pytest.MonkeyPatch, test: str, status: str, said: str):
    monkeypatch.setattr(sandbox.run, "__defaults__", (1.0, 2**27, True))
    namespace: dict[str, Any] = {}
    exec(test, namespace)
    result = session.check("demo.6", namespace["t"])
    assert result.status == status and said in result.message, result


# ---------------------------------------------------------------- from source
SCALE = 3.0


def helper(x):
    return SCALE * x


def uses_the_notebook(x, y):
    return helper(x) * y / SCALE + np.float64(0)


def test_a_function_brings_what_it_needs_to_a_fresh_process(session: Session, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sandbox, "forks", lambda: False)
    monkeypatch.setattr(uses_the_notebook, "__module__", "__main__")
    monkeypatch.setattr(helper, "__module__", "__main__")
    factor = 1.0
    closed = lambda x, y: x * y * factor  # noqa: E731
    assert session.check("demo.3", uses_the_notebook).status == "right"
    assert session.check("demo.3", closed).status == "right"
    assert session.check("demo.3", np.multiply).status == "error"


def test_source_of_a_lambda_inside_a_call():
    assert portable(lambda x: x + 1)["before"][-1] == "_answer = lambda x: x + 1"


def test_torch_in_the_notebook_means_a_fresh_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torch", sys)
    assert not sandbox.forks()


def test_an_untouched_function_is_not_answered(session: Session):
    def empty(x, y):
        """What it should do."""
        ...

    def also_empty(x, y):
        pass

    for function in (empty, also_empty, lambda *_: None):
        assert session.check("demo.3", function).status == "unanswered"


def test_no_child_is_left_behind(session: Session):
    import psutil

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    session.check("demo.3", leave_python)
    after = {child.pid for child in psutil.Process().children(recursive=True)}
    assert after <= before | ({session.oracle._process.pid} if session.oracle._process else set())

"""Signals are delivered wherever they arrive, and end a run with what it has done."""

import os
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path

import pytest

from stepwell._util import interrupt
from stepwell._util.interrupt import Interruptible, delivering_interrupts, exit_status, interrupted, interruptible

INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, signal.SIGHUP

_STRUCK_IN_THE_COLLECTOR = """
import gc, os, signal, time
from stepwell._util import interrupt
from stepwell._util.interrupt import delivering_interrupts

interrupt._AGAIN = 1.0  # time to print, on a busy machine too

def _xla_gc_callback(phase, info):  # what is raised here is lost
    if phase == "start" and strikes:
        strikes.pop()
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass

strikes = [1]
gc.callbacks.append(_xla_gc_callback)
try:
    with delivering_interrupts():
        gc.collect()
        print("after", flush=True)
        time.sleep(20)
except KeyboardInterrupt:
    print("delivered", signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch):
    """No presses of Ctrl-C are three within a second, however fast."""
    monkeypatch.setattr(interrupt, "_URGENT", -1.0)


@pytest.fixture
def urgent(monkeypatch: pytest.MonkeyPatch):
    """Three presses of Ctrl-C are within a second, however slow the machine."""
    monkeypatch.setattr(interrupt, "_URGENT", 1e9)


@pytest.fixture(autouse=True)
def handlers_are_put_back():
    before = [signal.getsignal(number) for number in (INT, TERM, HUP)]
    yield
    assert [signal.getsignal(number) for number in (INT, TERM, HUP)] == before
    assert interrupt._outermost is None


def test_a_signal_in_a_callback_of_the_collector_is_sent_again():
    run = subprocess.run([sys.executable, "-c", _STRUCK_IN_THE_COLLECTOR], capture_output=True, text=True, timeout=30)
    assert run.stdout.splitlines() == ["after", "delivered True"] and run.stderr == "", run.stderr


def test_elsewhere_it_is_as_ever_and_an_ignored_one_stays_so():
    program = (
        "import os, signal\nfrom stepwell._util.interrupt import delivering_interrupts\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "with delivering_interrupts(): os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with delivering_interrupts(): os.kill(os.getpid(), signal.SIGINT)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert run.returncode == -signal.SIGINT and run.stderr.splitlines()[-1] == "KeyboardInterrupt"


def test_a_run_under_nohup_does_not_end_by_sighup():
    program = (
        "import os, signal\nfrom stepwell._util.interrupt import Interruptible, delivering_interrupts\n"
        "with delivering_interrupts(), Interruptible(holding=True), Interruptible() as signals:\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    print(signals.pressed, signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)\n"
    )
    run = subprocess.run(["nohup", sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (run.returncode, run.stdout.split()) == (0, ["False", "True"]), run.stderr


def test_a_test_that_sends_sighup_passes_under_nohup():
    test = Path(__file__).parent / "dynamics/test_signals.py::test_a_signal_ends_a_run_which_is_kept"
    command = ["nohup", sys.executable, "-m", "pytest", "-q", "-n0", "-pno:cacheprovider", f"{test}[descend-{HUP}]"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0 and "1 passed" in run.stdout, run.stdout


@pytest.mark.parametrize("number", [INT, TERM, HUP])
def test_a_command_ends_by_each_signal_with_its_own_status(number: int):
    with pytest.raises(KeyboardInterrupt), delivering_interrupts():
        signal.raise_signal(number)
    assert exit_status() == 128 + number


@pytest.mark.parametrize("number", [INT, TERM, HUP])
def test_a_signal_is_seen_by_the_loop_and_further_ones_wait(number: int, patient, capfd: pytest.CaptureFixture[str]):
    with Interruptible() as ctrl_c:
        assert not ctrl_c.pressed and interrupted() == "interrupted"
        for _ in range(5):
            signal.raise_signal(number)
        assert ctrl_c.pressed
        assert interrupted() == ("interrupted" if number == INT else f"interrupted by {signal.Signals(number).name}")
    lines = capfd.readouterr().err.splitlines()
    assert ["saving …" in line for line in lines] == [False, True, True, True, True]


def test_the_third_press_within_a_second_gives_up(urgent):
    with pytest.raises(KeyboardInterrupt), Interruptible() as ctrl_c:
        signal.raise_signal(INT)
        signal.raise_signal(INT)
        assert ctrl_c.pressed
        signal.raise_signal(INT)
        pytest.fail("the third press did not raise")


def test_presses_are_counted_by_their_times(monkeypatch: pytest.MonkeyPatch):
    times = iter([0.0, 0.6, 1.2, 1.8, 2.1])
    monkeypatch.setattr(interrupt, "time", types.SimpleNamespace(monotonic=lambda: next(times)))
    with pytest.raises(KeyboardInterrupt), Interruptible():
        for _ in range(4):
            signal.raise_signal(INT)  # never three within a second
        signal.raise_signal(INT)  # 1.2, 1.8, 2.1
        pytest.fail("the third press within a second did not raise")


def test_giving_up_reaches_the_caller_even_if_a_loop_takes_it_for_its_own(urgent):
    with pytest.raises(KeyboardInterrupt), Interruptible() as ctrl_c:
        try:
            for _ in range(3):
                signal.raise_signal(INT)
        except KeyboardInterrupt:
            assert ctrl_c.pressed


def test_sigterm_never_gives_up(urgent):
    with Interruptible() as ctrl_c:
        for _ in range(5):
            signal.raise_signal(TERM)
        assert ctrl_c.pressed


def test_who_holds_the_signals_gives_up_only_after_the_release(urgent):
    with Interruptible(holding=True) as signals:
        with Interruptible() as ctrl_c:
            for _ in range(5):
                signal.raise_signal(INT)
            assert ctrl_c.pressed
        for _ in range(5):
            signal.raise_signal(INT)
        with pytest.raises(KeyboardInterrupt):
            signals.release()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(INT)


@pytest.mark.parametrize("number", [INT, TERM, HUP])
def test_before_a_run_begins_there_is_nothing_to_hold(number: int):
    with pytest.raises(KeyboardInterrupt), Interruptible(holding=True), Interruptible(around=True):
        signal.raise_signal(number)


def test_what_comes_after_the_loop_is_protected_too(patient):
    @interruptible
    def run(early: int | None, late: int | None) -> str:
        if early is not None:
            signal.raise_signal(early)
        with Interruptible() as ctrl_c:
            outcome = "interrupted" if ctrl_c.pressed else "finished"
        if late is not None:
            signal.raise_signal(late)
        return outcome

    assert run(None, TERM) == "finished"
    assert run(TERM, None) == run(TERM, TERM) == "interrupted"
    with pytest.raises(KeyboardInterrupt):  # nothing is lost yet
        run(INT, None)


def test_ctrl_c_that_came_after_the_end_of_a_run_comes_again():
    """The results are returned first. SIGTERM does not come again: it would kill the process before it has saved."""
    program = (
        "import signal, time\nfrom stepwell._util.interrupt import Interruptible\n"
        "def run(number):\n    with Interruptible():\n        signal.raise_signal(number)\n    return 'results'\n"
        "print(run(signal.SIGTERM))\ntime.sleep(0.2)\n"
        "try:\n    print(run(signal.SIGINT))\n    time.sleep(20)\nexcept KeyboardInterrupt:\n    print('again')\n"
        "print('default', signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)\n"
        "signal.raise_signal(signal.SIGTERM)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert run.stdout.splitlines() == ["results", "results", "again", "default True"], run.stderr
    assert run.returncode == -TERM


@pytest.mark.parametrize("number", [INT, TERM, HUP])
@pytest.mark.parametrize("custom", [True, False])
def test_custom_handlers_and_ignored_signals_are_left_in_place(number: int, custom: bool):
    calls = []
    handler = (lambda *_: calls.append(1)) if custom else signal.SIG_IGN
    before = signal.signal(number, handler)
    try:
        with delivering_interrupts(), Interruptible(holding=True), Interruptible() as ctrl_c:
            assert signal.getsignal(number) is handler
            signal.raise_signal(number)
            assert not ctrl_c.pressed
        assert len(calls) == custom
    finally:
        signal.signal(number, before)


def test_other_threads_have_no_part_in_it(patient):
    seen = []

    def elsewhere():
        with Interruptible() as ctrl_c:
            signal.pthread_kill(threading.main_thread().ident or 0, TERM)
            seen.append(ctrl_c.pressed)

    with Interruptible() as ctrl_c:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert ctrl_c.pressed and seen == [False]


def test_a_terminal_that_is_gone_changes_nothing(monkeypatch: pytest.MonkeyPatch, patient):
    with open(os.devnull) as unwritable:
        monkeypatch.setattr(sys, "__stderr__", unwritable)
        with Interruptible() as ctrl_c:
            signal.raise_signal(HUP)
            assert ctrl_c.pressed

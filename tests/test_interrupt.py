"""SIGINT is delivered wherever it arrives."""

import signal
import subprocess
import sys

_STRUCK_IN_THE_COLLECTOR = """
import gc, os, signal, time
from stepwell import _interrupt
from stepwell._interrupt import delivering_interrupts

_interrupt._AGAIN = 1.0  # time to print, on a busy machine too

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


def test_a_signal_in_a_callback_of_the_collector_is_sent_again():
    run = subprocess.run([sys.executable, "-c", _STRUCK_IN_THE_COLLECTOR], capture_output=True, text=True, timeout=30)
    assert run.stdout.splitlines() == ["after", "delivered True"] and run.stderr == "", run.stderr


def test_elsewhere_it_is_as_ever_and_an_ignored_one_stays_so():
    program = (
        "import os, signal\nfrom stepwell._interrupt import delivering_interrupts\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "with delivering_interrupts(): os.kill(os.getpid(), signal.SIGINT)\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with delivering_interrupts(): os.kill(os.getpid(), signal.SIGINT)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert run.returncode == -signal.SIGINT and run.stderr.splitlines()[-1] == "KeyboardInterrupt"

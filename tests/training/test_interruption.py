import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bayes_planet.training.interruption import EXIT_INTERRUPTED, Interruption, handled

ROOT = Path(__file__).parents[2]
WORK = """
import sys, time
from bayes_planet.training.interruption import EXIT_INTERRUPTED, Interruption
def say(line): print(line, flush=True)
with Interruption(say) as interruption:
    say("ready")
    while not interruption.requested:
        time.sleep(0.01)
    say(f"flag {interruption.signal_name}")
    if sys.argv[1] == "slow":
        for _ in range(12000):  # a signal that comes just before one long sleep would not end it
            time.sleep(0.01)
say("saved")
sys.exit(EXIT_INTERRUPTED)
"""


def start(mode):
    process = subprocess.Popen(
        [sys.executable, "-c", WORK, mode], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGUSR1"])
def test_the_first_signal_lets_the_work_end(name):
    process = start("quick")
    process.send_signal(getattr(signal, name))
    output, errors = process.communicate(timeout=120)
    line, *rest = output.splitlines()
    assert line.startswith(f"{name}: ") and rest == [f"flag {name}", "saved"] and errors == ""
    assert process.returncode == EXIT_INTERRUPTED == 75


@pytest.mark.parametrize("second", ["SIGINT", "SIGTERM"])
def test_the_second_signal_ends_it_at_once(second):
    process = start("slow")
    process.send_signal(signal.SIGTERM)
    while (line := process.stdout.readline()) != "flag SIGTERM\n":
        assert line, process.communicate()
    process.send_signal(getattr(signal, second))
    output, errors = process.communicate(timeout=120)
    assert output == "" and f"KeyboardInterrupt: {second} after SIGTERM" in errors
    assert process.returncode not in (0, EXIT_INTERRUPTED)


def test_earlier_handlers_come_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]
    with pytest.raises(ZeroDivisionError), Interruption() as interruption:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert interruption.requested and interruption.signal_name == "SIGUSR1"
        raise ZeroDivisionError
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == before


def test_what_was_ignored_stays_so_and_what_was_not_comes_back():
    seen = []
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with handled((signal.SIGUSR1, signal.SIGUSR2), lambda number, frame: seen.append(number)):
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGUSR2)
        assert seen == [signal.SIGUSR2]
        assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN
        assert signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_was_ignored_interrupts_nothing():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as of a job in the background of a script
    try:
        with Interruption() as interruption:
            interruption.install()
            os.kill(os.getpid(), signal.SIGINT)
            assert not interruption.requested
            os.kill(os.getpid(), signal.SIGTERM)
            assert interruption.requested and interruption.signal_name == "SIGTERM"
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_report_that_fails_does_not_stop_the_work():
    def fail(line):
        raise RuntimeError("reentrant call")

    with Interruption(fail) as interruption:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert interruption.requested


def test_another_thread_is_told_what_to_do():
    errors = []

    def enter():
        try:
            with Interruption():
                pass
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=enter, name="collector")
    thread.start()
    thread.join()
    assert len(errors) == 1 and "'collector'" in errors[0] and "main thread alone" in errors[0]

"""Threads for groups of environments: results in order, and one error ends all."""

import threading
import time

import pytest

from bayes_planet.collecting.groups import StoppedError, side_by_side


def test_works_side_by_side_give_their_results_in_order():
    together = threading.Barrier(2, timeout=120)  # reached only if both run at a time
    polled: list[int] = []

    def slow(step) -> str:
        together.wait()
        while len(polled) < 2:
            step()
            time.sleep(0.01)
        return "slow"

    def quick(step) -> str:
        together.wait()
        step()
        return "quick"

    stepped: list[int] = []
    found = side_by_side([quick, slow], lambda: stepped.append(1), lambda: polled.append(1))
    assert found == ["quick", "slow"] and stepped == [1] and len(polled) >= 2


@pytest.mark.parametrize("failing", ["first", "second", "waiting"])
def test_one_error_ends_all_works(failing):
    ends: list[str] = []

    def work(name: str):
        def run(step) -> None:
            try:
                for number in range(2000):
                    step()
                    time.sleep(0.01)
                    if number == 3 and name == failing:
                        raise ZeroDivisionError(name)
                    if failing == "waiting" and name == "first":
                        return
            except Exception as error:
                ends.append(f"{name}: {type(error).__name__}")
                raise

        return run

    def interrupt() -> None:
        if failing == "waiting":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt if failing == "waiting" else ZeroDivisionError):
        side_by_side([work("first"), work("second")], lambda: None, interrupt)
    expected = {
        "first": ["first: ZeroDivisionError", f"second: {StoppedError.__name__}"],
        "second": ["first: ZeroDivisionError", "second: ZeroDivisionError"],
        "waiting": [f"second: {StoppedError.__name__}"],
    }
    assert sorted(ends) == expected[failing]

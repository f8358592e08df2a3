"""Rounds, medians and ratios, with contestants whose times are made up."""

import pytest

from benchmarks.speed.results import Setup, measure
from benchmarks.speed.roofline import Work
from benchmarks.speed.targets import TARGETS, judge
from benchmarks.timing import Contestant, Failure, interleave, paired_ratio, summarise


def scripted(name: str, times: list[float], calls: list[str], **options) -> Contestant:
    """Takes the next of `times` a unit."""
    left = iter(times)

    def unit(repeats: int) -> float:
        calls.append(name)
        return repeats * next(left)

    return Contestant(name, name, unit, **options)


def test_rounds_are_interleaved_after_a_warm_up():
    calls: list[str] = []
    a, b = scripted("a", [9.0, 8.0, 1.0, 3.0], calls), scripted("b", [9.0, 8.0, 2.0, 4.0], calls)
    assert interleave([a, b], 2) == {"a": [1.0, 3.0], "b": [2.0, 4.0]}
    assert calls == ["a", "a", "b", "b", "a", "b", "a", "b"]


def test_short_units_are_repeated_within_a_round():
    repeated = []
    contestant = Contestant("a", "a", lambda count: repeated.append(count) or count * 0.01)
    assert interleave([contestant], 1, least_seconds=0.3)["a"] == pytest.approx([0.01])
    assert repeated == [1, 1, 30]


def test_ratio_is_of_medians_with_quartiles_within_rounds():
    # The ratios within rounds are 2, 2 and 20, the medians 6 and 2.
    ratio = paired_ratio([2.0, 6.0, 40.0], [1.0, 3.0, 2.0])
    assert ratio == {"median": 3.0, "lower_quartile": 2.0, "upper_quartile": 11.0}


def test_summary_has_quartiles():
    summary = summarise([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (summary.median, summary.lower_quartile, summary.upper_quartile) == (3.0, 2.0, 4.0)
    with pytest.raises(ValueError, match="--rounds"):
        summarise([])


def test_rows_hold_ratio_floor_and_failures(tmp_path):
    work = Work(100, {"float32": 10, "bfloat16": 5})
    entries = [
        scripted("a", [1.0] * 4, [], work=work),
        Failure("b", "B", "no compiler"),
        scripted("c", [3.0] * 4, [], work=work, precision="bfloat16"),
    ]
    rates = {"float32": 1000.0, "bfloat16": 4000.0, "copy": 1e9}
    a, b, c = measure(entries, Setup(["debug"], 2, tmp_path, rates))
    assert b == {"name": "b", "label": "B", "error": "no compiler"}
    assert (a["ratio"]["median"], c["ratio"]["median"]) == (1.0, 3.0)
    assert (a["over_floor"], c["over_floor"]) == pytest.approx((10.0, 120.0))
    assert c["work"] == {"flops": 100, "bytes": 5, "floor_seconds": 0.025}


def section_of(size: str, **seconds: float) -> dict:
    rows = [{"name": name, "seconds": {"median": median}} for name, median in seconds.items()]
    return {"size": size, "rows": rows, "facts": {}}


def test_targets_take_the_fastest_variant_and_say_what_is_missing():
    ours, fp32, best = "ours/bayes_planet/auto", "torch/float32", "torch/bfloat16"
    verdicts = judge("update", [section_of("paper", **{ours: 1.0, fp32: 4.5, best: 1.5})])
    found = {verdict["text"]: (verdict["value"], verdict["met"]) for verdict in verdicts}
    assert found == {
        "times faster than the best PyTorch variant": (1.5, False),
        "times faster than PyTorch float32": (4.5, True),
        "times faster than plain TensorFlow float32": (None, None),
    }


def test_upper_bounds_are_upper_bounds():
    slow = section_of("paper", **{"ours/bayes_planet/auto": 1.2, "ours/planet/auto": 1.0})
    fast = section_of("laptop", **{"ours/bayes_planet/auto": 1.1, "ours/planet/auto": 1.0})
    assert [verdict["met"] for verdict in judge("bayesian", [slow, fast])] == [False, True]


def test_every_target_names_a_benchmark():
    from benchmarks.speed.run import BENCHMARKS

    assert {target.benchmark for target in TARGETS} <= set(BENCHMARKS)

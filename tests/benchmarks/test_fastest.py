"""The fastest stretch of an episode, from episodes and from what was kept of them."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bayes_planet.replay.episode import encode, file_name
from benchmarks.evidence import keep
from benchmarks.fastest import FILE, fastest, main, of_run, table


@given(arrays.arrays(np.float32, st.integers(1, 60), elements=st.floats(-4, 4, width=32)), st.integers(1, 30))
def test_it_is_the_best_of_all_windows(rewards, decisions):
    window = min(decisions, len(rewards))
    windows = [rewards[start : start + window].mean(dtype=np.float64) for start in range(len(rewards) - window + 1)]
    assert fastest(rewards, decisions) == pytest.approx(max(windows), abs=1e-9)


def episode(rewards: np.ndarray) -> bytes:
    rows = len(rewards) + 1
    return encode(
        {
            "state": np.zeros((rows, 2), np.float32),
            "action": np.zeros((rows, 1), np.float32),
            "reward": np.concatenate([[0], rewards]).astype(np.float32),
            "is_terminal": np.zeros(rows, bool),
        }
    )


def test_a_kept_run_says_what_its_episodes_do(tmp_path, capsys):
    run, out = tmp_path / "run", tmp_path / "kept"
    (run / "episodes").mkdir(parents=True)
    slow, fast = np.ones(40), np.where(np.arange(40) < 25, 2.0, 0.0)
    for index, rewards in enumerate((slow, fast, fast)):
        (run / "episodes" / file_name(index, 41)).write_bytes(episode(rewards))
    row = {"episodes": 1, "env_steps": 10, "updates": 0, "time": 1.0, "train/return": 40.0}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (run / "config.yaml").write_text("seed: 3\n")
    assert of_run(run) == [[1.0, 40.0], [2.0, 50.0], [2.0, 50.0]]
    keep(run, out, "train", "a machine")
    assert of_run(out) == of_run(run)
    main([str(out), "--block", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3:-1] == ["| 1 to 2 | 1.50 | 45 | 40 |", "| 3 to 3 | 2.00 | 50 | 50 |"]
    assert table(of_run(out), 2).splitlines() == lines[1:-1]


def test_a_run_whose_first_episodes_are_gone_is_refused(tmp_path):
    run = tmp_path / "run"
    (run / "episodes").mkdir(parents=True)
    (run / "episodes" / file_name(1, 6)).write_bytes(episode(np.ones(5)))
    with pytest.raises(ValueError, match=rf"neither {FILE} nor all of its episodes"):
        of_run(run)
    with pytest.raises(SystemExit):
        main([str(run)])
    with pytest.raises(SystemExit):
        main([str(run), "--block", "0"])

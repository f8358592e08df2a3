"""The page of searches: the same returns as `evaluate --planner`, and a table worked out by hand."""

import json

import pytest

from bayes_planet import BayesPlanet, cli
from benchmarks.searches import main, table
from tests.benchmarks.test_ablation import cells

CAUTIOUS = "weights=average weight_samples=2 uncertainty_bonus=-10"


def test_rows_are_compared_with_the_agents_own_search():
    found = {CAUTIOUS: [300.0, 300.0, 400.0, 400.0], "": [200.0] * 4}
    rows = cells(table(found))
    assert rows[0][:2] == [f"`{CAUTIOUS}`", "4"] and rows[0][3] == "350"
    assert rows[0][2].startswith("350 (300 to 400") and rows[0][4].startswith("150 (100 to 200")
    assert rows[1] == ["its own", "4", "200 (200 to 200, one seed)", "200", ""]
    with pytest.raises(ValueError, match="own search"):
        table({CAUTIOUS: [1.0]})


def test_it_plays_what_evaluate_plays_and_nothing_twice(tmp_path, capfd):
    overrides = {"env.observations": "state", "env.episode_env_steps": 80}
    agent = BayesPlanet("dm_control/cartpole-swingup", ["bayes_planet", "debug"], overrides=overrides)
    agent.save(tmp_path / "agent")
    agent.close()
    page, common = tmp_path / "page", ["--agent", str(tmp_path / "agent"), "--episodes", "2", "--seed", "5"]
    main([str(page), *common, "--search", "", CAUTIOUS])
    known = json.loads((page / "returns.json").read_text())
    capfd.readouterr()
    for search, played in known["returns"].items():
        planner = ["--planner", *search.split()] if search else []
        assert (
            cli.main(["evaluate", str(tmp_path / "agent"), "--episodes", "2", "--seed", "5", "--json", *planner]) == 0
        )
        assert json.loads(capfd.readouterr().out)["returns"] == played
    with pytest.raises(SystemExit):
        (page / "returns.json").write_text(json.dumps(known | {"updates": known["updates"] + 100}))
        main([str(page), *common, "--search", "horizon=3"])
    assert "has 0 updates, and 100 when it was played" in capfd.readouterr().err
    known["returns"][CAUTIOUS] = [1.0, 3.0]
    (page / "returns.json").write_text(json.dumps(known))
    main([str(page), *common, "--search", CAUTIOUS])
    assert cells((page / "README.md").read_text())[1][3] == "2"


def test_another_agent_does_not_enter_the_page(tmp_path, capsys):
    (tmp_path / "returns.json").write_text(json.dumps({"agent": "a", "episodes": 2, "seed": 0, "returns": {"": [1.0]}}))
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--agent", "b", "--episodes", "2", "--search", "horizon=20"])
    assert "is about {'agent': 'a'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path / "new"), "--agent", "b", "--episodes", "2", "--search", "horizon=20"])
    assert 'Give it too: --search ""' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--search", "horizon=20"])
    assert "--agent" in capsys.readouterr().err

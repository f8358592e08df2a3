import pytest

pytest.importorskip("mlxtend")

from examples.gallery import vq_vae


def test_runs(tmp_path):
    figures = vq_vae.main(tiny=True, picture=tmp_path / "vq.png")
    assert (tmp_path / "vq.png").stat().st_size > 1000
    for way in ("mean penalties", "summed penalties", "averages, restarts"):
        assert 1 <= figures[way]["perplexity of the codes"] <= figures[way]["codes used, of 64"] <= vq_vae.CODES


@pytest.mark.slow
def test_summed_penalties_use_more_codes_and_restarts_most():
    figures = vq_vae.main(seed=0)
    used = [figures[way]["codes used, of 64"] for way in ("mean penalties", "summed penalties", "averages, restarts")]
    assert used[0] < 16 and used[1] > 2 * used[0] and used[2] >= 60
    nats = [row["reconstruction, nats an image"] for way, row in figures.items() if way not in ("twin", "training")]
    assert nats[2] < nats[1] < nats[0]

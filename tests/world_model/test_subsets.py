"""Random shares of a batch's rows."""

import tensorflow as tf

from bayes_planet.world_model.subsets import choose_rows, share, size
from tests.world_model.tiny import seed


def test_chosen_rows_are_different_ones_and_as_many_as_wanted():
    assert choose_rows(9, 1.0, seed(0)) is None
    chosen = choose_rows(9, 0.34, seed(0)).numpy()
    assert len(set(chosen)) == 3 and set(chosen) <= set(range(9))
    assert len(choose_rows(9, 0.01, seed(0))) == 1
    assert set(chosen) != set(choose_rows(9, 0.34, seed(1)).numpy())


def test_a_number_known_when_running_chooses_the_same():
    @tf.function(input_signature=[tf.TensorSpec([None, 2])], autograph=False)
    def chosen(value):
        rows = choose_rows(size(value, 0), 0.34, seed(0))
        assert choose_rows(size(value, 0), 1.0, seed(0)) is None
        return rows, share(size(rows, 0), size(value, 0)), share(size(value, 1), 4)

    for count in (1, 2, 9, 20):
        rows, part, half = chosen(tf.zeros([count, 2]))
        expected = choose_rows(count, 0.34, seed(0))
        expected = [0] if expected is None else expected.numpy().tolist()
        assert rows.numpy().tolist() == expected
        assert abs(float(part) - len(expected) / count) < 1e-6 and half == 0.5

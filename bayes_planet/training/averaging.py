"""A moving average of the parameters that training changes, in a world model of its own."""

import tensorflow as tf

from bayes_planet.world_model import WorldModel


def copy_variables(source: WorldModel, target: WorldModel) -> None:
    """Every variable of `target` takes the value that it has in `source`, a model of the same configuration."""
    for theirs, ours in zip(source.variables, target.variables, strict=True):
        ours.assign(theirs)


class ParameterAverage:
    """Keeps the exponential moving average of one world model's parameters in another, which acts.

    Parameters that training leaves wander around good ones by what the last batches held; their mean over some
    thousand updates does not. The decay grows with the updates, min(decay, (1 + n) / (10 + n)), so that the average
    is over about the last tenth of a young run. Statistics (of state observations) are copied, not averaged.

    Args:
      average: takes the values of `trained` at once.
      trained: of the same configuration.
      decay: in (0, 1); 1 / (1 - decay) updates are averaged in the end.
      strategy: in whose scope both were made.

    Source: Polyak and Juditsky, 1992; the decay's rise is that of `tf.train.ExponentialMovingAverage`.
    """

    def __init__(self, average: WorldModel, trained: WorldModel, decay: float, strategy: tf.distribute.Strategy):
        self.average = average
        self.trained = trained
        self._decay = decay
        self._strategy = strategy
        parameters = {id(variable) for variable in trained.trainable_variables}
        pairs = list(zip(average.variables, trained.variables, strict=True))
        self._averaged = [pair for pair in pairs if id(pair[1]) in parameters]
        self._copied = [pair for pair in pairs if id(pair[1]) not in parameters]
        copy_variables(trained, average)

    def step(self, updates: tf.Tensor) -> None:
        """Follows an update, the number `updates` from 1; called outside `strategy.run`."""
        count = tf.cast(updates, tf.float32)
        share = 1.0 - tf.minimum(self._decay, (1.0 + count) / (10.0 + count))

        def approach(ours: tf.Variable, theirs: tf.Tensor) -> tf.Operation:
            return ours.assign_add(tf.cast(share, ours.dtype) * (theirs - ours))

        for ours, theirs in self._averaged:
            self._strategy.extended.update(ours, approach, args=(theirs,))
        for ours, theirs in self._copied:
            self._strategy.extended.update(ours, lambda ours, theirs: ours.assign(theirs), args=(theirs,))

    def restart(self) -> None:
        """Trained parameters become the average: to go on from a saved model that holds no others."""
        copy_variables(self.average, self.trained)

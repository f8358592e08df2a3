"""IVON: variational learning of all weights of a plain model, at about the price of Adam."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.bayesian_layers.samples.seeds import as_seed, fold
from bayes_planet.bayesian_layers.samples.variable_values import predictions_at, variables_at


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class IVON(tf.keras.optimizers.Optimizer):
    """Natural-gradient variational inference with the posterior `q(w) = N(m, 1 / (ess (h + weight_decay)))`.

    The variables hold the means m. In each step the gradient is taken at one sample of the weights, and h, an
    estimate of the Hessian's diagonal of the mean loss, is learned from gradient times noise, without second
    derivatives. No KL is added to the loss, which is the *mean* loss of an example: the prior is
    `N(0, 1 / (ess weight_decay))`.

    ```
    w = m + e, e ~ N(0, 1 / (ess (h + d)))          one sample a step; g is the gradient at w
    f = ess (h + d) e g                             Price's estimate of the Hessian's diagonal
    u <- b1 u + (1 - b1) g
    h <- b2 h + (1 - b2) f + (1 - b2)^2 / 2 (h - f)^2 / (h + d)          with the old h; it stays positive
    m <- m - lr (hess_init + d) clip((u / (1 - b1^t) + d m) / (h + d))
    ```

    Give it to an `IVONModel`, whose `fit` takes the samples. In a loop of one's own:

    ```python
    with optimizer.sampled_weights(variables), tf.GradientTape() as tape:
        loss = ...
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    ```

    Args:
        learning_rate: lr, of the size of SGD's, as the step is rescaled by hess_init; 0.1 to 0.5 for networks from
            scratch. A number or a schedule.
        ess: effective sample size, usually the number of examples; larger: a narrower posterior.
        hess_init: h at the start. The stddev of the weights starts at 1 / sqrt(ess (hess_init + weight_decay)): lower
            it until the first steps are not lost in noise, higher where they are.
        beta1: of the momentum u. beta2: of h; its memory is 1 / (1 - beta2) steps, 100,000 with the default, which is
            for long runs: 1 - 1 / (number of steps) is a start for short ones.
        weight_decay: d, precision of the prior over ess.
        clip_radius: bound on each element of the preconditioned gradient.
        rescale_lr: multiply lr by hess_init + weight_decay, so that the first step is one of SGD.
        seed: integer of the samples' noise, which the step counter is folded into.

    State: three slots for each variable, [shape of the variable]: momentum, h and the noise of the step.

    Raises:
        ValueError: numbers out of range; a variable that it was not built with; several replicas.

    Source: Shen et al. 2024, "Variational Learning is Effective for Large Deep Networks", Algorithm 1.
    """

    def __init__(
        self,
        learning_rate: Any = 0.1,
        ess: float = 1000.0,
        hess_init: float = 1.0,
        beta1: float = 0.9,
        beta2: float = 0.99999,
        weight_decay: float = 1e-4,
        clip_radius: float = float("inf"),
        rescale_lr: bool = True,
        seed: int = 0,
        name: str = "IVON",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, weight_decay=None, **kwargs)  # Keras' own would come on top
        numbers = {"ess": ess, "hess_init": hess_init, "weight_decay": weight_decay, "clip_radius": clip_radius}
        wrong = {key: value for key, value in numbers.items() if not value > 0}
        wrong.update({key: value for key, value in {"beta1": beta1, "beta2": beta2}.items() if not 0 <= value < 1})
        if wrong:
            raise ValueError(f"IVON was given {wrong}. Accepted: positive numbers, and betas in [0, 1).")
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.ess, self.hess_init, self.decay = float(ess), float(hess_init), float(weight_decay)
        self.beta1, self.beta2, self.clip_radius = float(beta1), float(beta2), float(clip_radius)
        self.rescale_lr, self.seed = bool(rescale_lr), int(seed)

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        if getattr(self, "_built", False):
            return
        super().build(var_list)
        self._built = True

        def start(variable: tf.Variable) -> tf.Tensor:
            return tf.fill(variable.shape, tf.constant(self.hess_init, variable.dtype))

        self.momenta = [self.add_variable_from_reference(variable, "momentum") for variable in var_list]
        self.hessians = [
            self.add_variable_from_reference(variable, "hess", initial_value=start(variable)) for variable in var_list
        ]
        self.noises = [self.add_variable_from_reference(variable, "noise") for variable in var_list]

    @contextlib.contextmanager
    def sampled_weights(self, variables: Sequence[tf.Variable]) -> Iterator[None]:
        """`variables` hold one sample inside, and their means after it; the noise is kept for the next step.

        Take the gradient of the loss inside, and apply it after. Not under a tf.distribute strategy of several
        replicas.
        """
        variables = list(variables)
        if tf.distribute.get_strategy().num_replicas_in_sync > 1:
            raise ValueError(
                "IVON.sampled_weights was entered under a tf.distribute strategy of several replicas. Accepted: one "
                "device, or DTensor."
            )
        with tf.init_scope():
            self.build(variables)
        step = tf.cast(self.iterations, tf.int32)
        seed = fold(fold(as_seed([self.seed, 0]), step), 0)
        noises = [self._noise(variable, fold(seed, index)) for index, variable in enumerate(variables)]
        for variable, noise in zip(variables, noises, strict=True):
            self.noises[self._index(variable)].assign(noise)
        with variables_at(variables, [variable + noise for variable, noise in zip(variables, noises, strict=True)]):
            yield

    def update_step(self, gradient: Any, variable: tf.Variable) -> None:
        index = self._index(variable)
        momentum, hess, noise = self.momenta[index], self.hessians[index], self.noises[index]
        dtype = variable.dtype
        gradient = tf.cast(tf.convert_to_tensor(gradient), dtype)
        rate, decay = tf.cast(self.learning_rate, dtype), tf.constant(self.decay, dtype)
        beta1, beta2 = tf.constant(self.beta1, dtype), tf.constant(self.beta2, dtype)
        step = tf.cast(self.iterations + 1, dtype)

        precision = hess + decay
        estimate = noise * gradient * precision * tf.constant(self.ess, dtype)
        momentum.assign(beta1 * momentum + (1 - beta1) * gradient)
        hess.assign(
            beta2 * hess + (1 - beta2) * estimate + 0.5 * tf.square(1 - beta2) * tf.square(hess - estimate) / precision
        )
        direction = (momentum / (1 - tf.pow(beta1, step)) + decay * variable) / (hess + decay)
        if np.isfinite(self.clip_radius):
            direction = tf.clip_by_value(direction, -self.clip_radius, self.clip_radius)
        if self.rescale_lr:
            rate = rate * (tf.constant(self.hess_init, dtype) + decay)
        variable.assign_sub(rate * direction)

    def draw(self, variables: Sequence[tf.Variable], seed: Any) -> list[tf.Tensor]:
        """One draw of the weights from the posterior, of the shapes of `variables`; seed int32 [2]."""
        with tf.init_scope():
            self.build(list(variables))
        seed = as_seed(seed)
        return [variable + self._noise(variable, fold(seed, index)) for index, variable in enumerate(variables)]

    def stddev(self, variable: tf.Variable) -> tf.Tensor:
        """The posterior stddev of a variable, `1 / sqrt(ess (h + weight_decay))`, of its shape."""
        hess = self.hessians[self._index(variable)]
        return tf.math.rsqrt(tf.cast(self.ess, hess.dtype) * (hess + tf.cast(self.decay, hess.dtype)))

    def _noise(self, variable: tf.Variable, seed: tf.Tensor) -> tf.Tensor:
        return self.stddev(variable) * tf.random.stateless_normal(variable.shape, seed, dtype=variable.dtype)

    def _index(self, variable: tf.Variable) -> int:
        key = self._var_key(variable)
        if key not in self._index_dict:
            raise ValueError(
                f"IVON has no posterior of the variable {variable.name!r}. Accepted: those that it was built with at "
                "the first step; make a new optimizer for other variables."
            )
        return self._index_dict[key]

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        config.update(
            learning_rate=self._serialize_hyperparameter(self._learning_rate),
            ess=self.ess,
            hess_init=self.hess_init,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=self.decay,
            clip_radius=self.clip_radius,
            rescale_lr=self.rescale_lr,
            seed=self.seed,
        )
        return config


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class IVONModel(tf.keras.Model):
    """A plain Keras model whose weights `IVON` learns a distribution of, with Keras' `fit`.

    ```python
    model = IVONModel(network)
    model.compile(IVON(0.1, ess=len(x), hess_init=0.1), "sparse_categorical_crossentropy")
    model.fit(x, y)
    model(x)                                            # at the means
    model.sample_predictions(x, samples=20, seed=[0, 1])    # [20, B, ...]
    ```

    Its weights are those of the network. `call`, `evaluate` and `predict` are at the posterior means.

    Args:
        network: a Keras model or layer without random weights, whose output is a tensor.

    Call arguments:
        inputs, training: as the network.

    Returns:
        the network's output, e.g. [B, ...].

    Raises:
        ValueError: `fit` or `sample_predictions` with another optimizer.

    Source: Shen et al. 2024, "Variational Learning is Effective for Large Deep Networks".
    """

    def __init__(self, network: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.network = network

    def call(self, inputs: Any, training: Any = None) -> Any:
        return self.network(inputs, training=training)

    def train_step(self, data: Any) -> dict[str, Any]:
        self._require_ivon()
        x, y, weight = tf.keras.utils.unpack_x_y_sample_weight(data)
        if not self.built:
            self(x)
        variables = self.trainable_variables
        with self.optimizer.sampled_weights(variables):
            with tf.GradientTape() as tape:
                outputs = self(x, training=True)
                loss = self.compute_loss(x, y, outputs, weight)
            gradients = tape.gradient(loss, variables)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return self.compute_metrics(x, y, outputs, weight)

    def sample_predictions(self, x: Any, samples: int, seed: Any, training: bool = False) -> tf.Tensor:
        """The outputs under draws of all weights from IVON's posterior.

        Args:
            x: the inputs, [B, ...]. samples: S. seed: stateless seed, int32 [2]. training: handed to the network.

        Returns:
            [S, B, ...].

        Raises:
            ValueError: not compiled with IVON; `samples` is no positive integer; the seed is not two integers.
        """
        self._require_ivon()
        x = tf.nest.map_structure(tf.convert_to_tensor, x)
        if not self.built:
            self(x)
        variables = self.trainable_variables
        return predictions_at(
            lambda: self(x, training=training),
            variables,
            lambda one: self.optimizer.draw(variables, one),
            samples,
            seed,
        )

    def _require_ivon(self) -> None:
        optimizer = getattr(self, "optimizer", None)
        if not isinstance(optimizer, IVON):
            raise ValueError(f"This IVONModel's optimizer is {optimizer!r}. Accepted: compile(IVON(...), loss).")

    def get_config(self) -> dict[str, Any]:
        network = tf.keras.utils.serialize_keras_object(self.network)
        return {**super().get_config(), "name": self.name, "network": network}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> IVONModel:
        config = dict(config)
        network = tf.keras.utils.deserialize_keras_object(config.pop("network"), custom_objects=custom_objects)
        return cls(network, **config)

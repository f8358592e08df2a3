"""Layers that draw the noise of their outputs, not of their weights, and hierarchical (horseshoe) layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.distributions import constraints, initializers, regularizers
from bayes_planet.bayesian_layers.distributions.posterior_kinds import require_moments
from bayes_planet.bayesian_layers.layers.convolutions import Conv2DFlipout, Conv2DReparameterization
from bayes_planet.bayesian_layers.layers.dense import DenseReparameterization
from bayes_planet.bayesian_layers.layers.products.projection import add_bias, project
from bayes_planet.bayesian_layers.layers.variational_layer import VariationalLayer, WeightAttribute
from bayes_planet.bayesian_layers.random_variables import tracing
from bayes_planet.bayesian_layers.samples.mesh_scope import standard_normal
from bayes_planet.bayesian_layers.samples.seeds import as_seed, fold, fresh_seed
from bayes_planet.bayesian_layers.samples.weight_scope import active_entry


class _LocalNoise(VariationalLayer):
    """Mixin: fresh outputs are normal with the mean and variance that the kernel's posterior implies."""

    noise_only_in_training = False
    activation: Any

    def _require_posterior(self, weight: str, posterior: Any) -> None:
        if weight == "kernel":
            require_moments(posterior, weight, self.name)

    def call(self, inputs: tf.Tensor, seed: Any = None, training: Any = None) -> tf.Tensor:
        def plain() -> tf.Tensor:
            return super(_LocalNoise, self).call(inputs, seed=seed, training=training)  # type: ignore[misc]

        # Tracers see the kernel, so it is drawn for them.
        if self.posterior("kernel") is None or tracing.active() or active_entry(self) is not None:  # type: ignore[arg-type]
            return plain()
        if not self.noise_only_in_training:
            return self._noisy(inputs, seed)
        if tf.is_tensor(training):
            return tf.cond(tf.cast(training, tf.bool), lambda: self._noisy(inputs, seed), plain)
        return self._noisy(inputs, seed) if training else plain()

    def _noisy(self, inputs: tf.Tensor, seed: Any) -> tf.Tensor:
        seed = fresh_seed() if seed is None else as_seed(seed)
        order = list(self.weight_fields)
        weights = {
            weight: tf.cast(posterior.draw(fold(seed, order.index(weight))), self.compute_dtype)
            for weight, posterior in self.posteriors().items()
            if weight != "kernel"
        }
        inputs = self._scaled(tf.cast(inputs, self.compute_dtype), weights)
        mean, variance = self._kernel_moments()
        outputs = self._linear(inputs, tf.cast(mean, self.compute_dtype))
        variance = self._linear(tf.square(tf.cast(inputs, variance.dtype)), variance)
        # The root of exactly 0 (an input of zeros) would have an infinite gradient.
        stddev = tf.sqrt(tf.maximum(variance, tf.constant(1e-20, variance.dtype)))
        noise_seed = fold(seed, len(order) + 1)
        noise = tf.cast(standard_normal(tf.shape(outputs), noise_seed, tf.float32), outputs.dtype)
        outputs += tf.cast(stddev, outputs.dtype) * noise
        if self.use_bias:
            outputs = self._add_bias(outputs, self.weight_value("bias", weights))
        return outputs if self.activation is None else self.activation(outputs)

    def _kernel_moments(self) -> tuple[tf.Tensor, tf.Tensor]:
        distribution = self.kernel.distribution
        # In float32 at least: float16 holds neither small variances nor the floor below them.
        dtype = tf.float64 if distribution.dtype == tf.float64 else tf.float32
        return tf.cast(distribution.mean(), dtype), tf.cast(distribution.variance(), dtype)

    def _scaled(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return inputs

    def _linear(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return project(inputs, kernel)

    def _add_bias(self, outputs: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        return add_bias(outputs, bias)


class _DropoutNoise(_LocalNoise):
    """Mixin: `_LocalNoise` in training, with the variance alpha * mean^2, log alpha clipped to [-8, 8]."""

    noise_only_in_training = True

    def _kernel_moments(self) -> tuple[tf.Tensor, tf.Tensor]:
        mean, variance = super()._kernel_moments()
        log_square = tf.math.log(tf.square(mean) + tf.keras.backend.epsilon())
        log_alpha = tf.clip_by_value(tf.math.log(variance) - log_square, -8.0, 8.0)
        return mean, tf.exp(log_alpha + log_square)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class DenseLocalReparameterization(_LocalNoise, DenseReparameterization):
    """Dense layer that draws its outputs: `y = activation(x M + sqrt(x^2 V) * e + b)`, e ~ N(0, 1) for each element.

    M and V are mean and variance of the kernel's posterior, which must have both, and independent elements (else
    ValueError when the layer is built); outputs are normal exactly where the posterior is. Each row so has a kernel of
    its own, and gradients vary least of all the dense estimators; it costs two products. Inside `use_weights(sample)`
    it uses the sample's kernel, the same for all rows, as `DenseReparameterization` does.

    Arguments, call arguments, returns ([..., I] to [..., units]) and errors as `DenseReparameterization`; `seed` also
    seeds the noise.

    Source: Kingma et al. 2015, "Variational Dropout and the Local Reparameterization Trick".
    """


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class DenseVariationalDropout(_DropoutNoise, DenseReparameterization):
    """Dense layer with Gaussian dropout whose rate alpha = V / M^2 is learned for each weight.

    With `training=True` as `DenseLocalReparameterization`, log alpha clipped to [-8, 8]; otherwise each call draws
    one kernel, as edward2 does (take `use_weights(posterior_mean(layer))` for the mean). The prior is log-uniform.

    Arguments, shapes and errors as `DenseReparameterization`, with kernel_regularizer='log_uniform_kl_divergence'.

    Source: Kingma et al. 2015; Molchanov et al. 2017, "Variational Dropout Sparsifies Deep Neural Networks".
    """

    def __init__(self, units: int, *args: Any, **kwargs: Any) -> None:
        if len(args) < 5:  # kernel_regularizer is the sixth argument of the parent
            kwargs.setdefault("kernel_regularizer", "log_uniform_kl_divergence")
        super().__init__(units, *args, **kwargs)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Conv2DVariationalDropout(_DropoutNoise, Conv2DReparameterization):
    """Convolution with Gaussian dropout whose rate is learned for each weight; see `DenseVariationalDropout`.

    Each output element has noise of its own. Arguments, shapes and errors as `Conv2DReparameterization`, with
    kernel_regularizer='log_uniform_kl_divergence'.

    Source: Molchanov et al. 2017.
    """

    def __init__(self, filters: int, kernel_size: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("kernel_regularizer", "log_uniform_kl_divergence")
        super().__init__(filters, kernel_size, *args, **kwargs)

    def _linear(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        return self._convolve(inputs, kernel)

    def _add_bias(self, outputs: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        return outputs + self._on_channels(bias)


_SCALES = ("local_scale", "global_scale")


class _Hierarchical(VariationalLayer):
    """Mixin: the kernel is a product of normal elements, a positive local scale for each unit and a global one."""

    weight_fields = {
        **VariationalLayer.weight_fields,
        "local_scale": ("local_scale_initializer", "local_scale_regularizer"),
        "global_scale": ("global_scale_initializer", "global_scale_regularizer"),
    }
    local_scale = WeightAttribute()
    global_scale = WeightAttribute()

    def __init__(
        self,
        *args: Any,
        local_scale_initializer: Any = "trainable_half_cauchy",
        global_scale_initializer: Any = "trainable_half_cauchy",
        local_scale_regularizer: Any = "half_cauchy_kl_divergence",
        global_scale_regularizer: Any = "default",
        local_scale_constraint: Any = "softplus",
        global_scale_constraint: Any = "softplus",
        **kwargs: Any,
    ) -> None:
        if len(args) < 6:
            kwargs.setdefault("kernel_regularizer", "normal_kl_divergence")
        super().__init__(*args, **kwargs)
        if isinstance(global_scale_regularizer, str) and global_scale_regularizer == "default":
            global_scale_regularizer = regularizers.HalfCauchyKLDivergence(scale=1e-5)
        self.local_scale_initializer = initializers.own(local_scale_initializer)
        self.global_scale_initializer = initializers.own(global_scale_initializer)
        self.local_scale_regularizer = regularizers.get(local_scale_regularizer)
        self.global_scale_regularizer = regularizers.get(global_scale_regularizer)
        self.local_scale_constraint = constraints.get(local_scale_constraint)
        self.global_scale_constraint = constraints.get(global_scale_constraint)

    def _build_scales(self, count: int) -> None:
        for name, shape in (("local_scale", (count,)), ("global_scale", ())):
            weight = self.add_weight(
                name,
                shape=shape,
                initializer=getattr(self, f"{name}_initializer"),
                regularizer=getattr(self, f"{name}_regularizer"),
            )
            setattr(self, name, weight)

    def _scale(self, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        """local * global, [units], or [S, units] for S draws."""
        values = []
        for name in _SCALES:
            value = self.weight_value(name, weights)
            constraint = getattr(self, f"{name}_constraint")
            if self.posterior(name) is None and constraint is not None:
                value = constraint(value)
            values.append(value)
        return values[0] * values[1][..., None]

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()  # type: ignore[misc]
        for name in _SCALES:
            config[f"{name}_initializer"] = initializers.serialize(getattr(self, f"{name}_initializer"))
            config[f"{name}_regularizer"] = regularizers.serialize(getattr(self, f"{name}_regularizer"))
            config[f"{name}_constraint"] = constraints.serialize(getattr(self, f"{name}_constraint"))
        return config


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class DenseHierarchical(_Hierarchical, DenseVariationalDropout):
    """Dense layer with a horseshoe prior: kernel[i, j] * local_scale[i] * global_scale, one local scale an input.

    The three have a posterior and a KL each (normal, and half-Cauchy for the scales), so `losses` has three entries.
    Inputs whose local scale goes to 0 are pruned. With `training=True` the kernel's noise is drawn in the outputs.

    Args: those of `DenseReparameterization`, and
        local_scale_initializer, global_scale_initializer: posteriors; or plain initializers of the raw scale, to which
            local_scale_constraint or global_scale_constraint is applied.
        local_scale_regularizer, global_scale_regularizer: their priors; 'default' of the global one is
            HalfCauchyKLDivergence(scale=1e-5). None: no KL.

    Half-Cauchy posteriors have no mean: `posterior_mean` holds their medians. Call arguments, returns ([..., I] to
    [..., units]) and errors as `DenseReparameterization`.

    Source: Louizos et al. 2017, "Bayesian Compression for Deep Learning"; Carvalho et al. 2009.
    """

    def build(self, input_shape: Any) -> None:
        self._build_scales(int(tf.TensorShape(input_shape)[-1]))
        super().build(input_shape)

    def _scaled(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        scale = self._scale(weights)
        if scale.shape.rank == 2:
            scale = tf.reshape(scale, [tf.shape(scale)[0], *[1] * (inputs.shape.rank - 2), scale.shape[-1]])
        return inputs * scale

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return super()._apply_kernel(self._scaled(inputs, weights), weights)


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Conv2DHierarchical(_Hierarchical, Conv2DFlipout):
    """Convolution with a horseshoe prior: kernel[..., j] * local_scale[j] * global_scale, one local scale a filter.

    The kernel's noise is that of `Conv2DFlipout`. Arguments as `Conv2DReparameterization` and, for the scales, as
    `DenseHierarchical`; shapes and errors as `Conv2DReparameterization`. Source: Louizos et al. 2017.
    """

    def build(self, input_shape: Any) -> None:
        self._build_scales(self.filters)
        super().build(input_shape)

    def _apply_kernel(self, inputs: tf.Tensor, weights: Mapping[str, tf.Tensor]) -> tf.Tensor:
        return super()._apply_kernel(inputs, weights) * self._on_channels(self._scale(weights))

"""Rank-1 Bayesian layers: a shared kernel, and a belief over the members' rank-1 factors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.ensembles.member_cells import GRUMemberCell, LSTMMemberCell
from bayes_planet.bayesian_layers.ensembles.member_factors import keyword_arguments
from bayes_planet.bayesian_layers.ensembles.member_layers import MemberLayer


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class DenseRank1(MemberLayer, tf.keras.layers.Dense):
    """Dense layer with random rank-1 factors: `y = f(((x * alpha) W) * gamma + b)`, alpha ~ q, gamma ~ q.

    The kernel W is an ordinary variable; the factors are random, a mixture of K = ensemble_size posteriors (member k
    has `alpha[k]` and `gamma[k]`). Each example draws its own factors, so each sees the kernel
    `W * outer(alpha, gamma)` of its own. Inside `use_weights(sample)` all examples of a member share the sample's
    factors: its entry holds `alpha` [K, I] and `gamma` [K, units] (and `ensemble_bias` [K, units] if that is random),
    after an axis of S for S draws. KL(q || p) is one entry of `losses` for each random weight.

    The batch holds the members' examples in blocks, member 0's first: to show every member the same examples, tile
    them once, before the first such layer and after whatever shuffles a batch or splits it among replicas,
    `tf.tile(x, [ensemble_size, 1])`.

    'trainable_normal' starts near 0, and so does the output. The paper's choice for deep networks is means of +-1
    and a prior about 1: `TrainableNormal(mean_initializer=RandomSign(0.5), stddev_initializer=0.05)` with
    `NormalKLDivergence(mean=1.0, stddev=0.1)`. With ensemble_size=1 and factors of 1 it is `tf.keras.layers.Dense`.

    Args: those of `tf.keras.layers.Dense`, and
        alpha_initializer, gamma_initializer, bias_initializer: 'trainable_normal' or another distribution makes the
            weight random; a plain initializer makes it deterministic, one value a member.
        alpha_regularizer, gamma_regularizer, bias_regularizer: 'normal_kl_divergence' or another KL for a random
            weight; Keras' for a deterministic one. A KL of a deterministic weight is dropped.
        alpha_constraint, gamma_constraint, bias_constraint: Keras constraints of deterministic weights.
        use_additive_perturbation: True: `y = f((x + alpha) W + gamma + b)`.
        min_perturbation_value, max_perturbation_value: random factors are clipped to this interval.
        ensemble_size: K.
        rank: by keyword, number of rank-1 terms as in `DenseBatchEnsemble`; 1 by default.

    Call arguments:
        inputs: [K * B, ..., I], floating; axes between share an example's factors. With a sample of S draws in force:
            [S, K * B, ..., I] or [1, K * B, ..., I].
        seed: stateless seed, int32 [2], for this call's draws; None takes one from TensorFlow's global generator. Not
            used inside `use_weights`.
        training: accepted and not used: factors are drawn either way.

    Returns:
        [K * B, ..., units] ([S, K * B, ..., units]) in the compute dtype. Posteriors stay in the variable dtype.

    Raises:
        ValueError: a batch that K does not divide (InvalidArgumentError where its size is known only when run), a
            random kernel, a constraint on a random weight, an empty interval, an unknown alias, a sample without this
            layer or of other shapes.

    Source: Dusenberry et al. 2020, "Efficient and Scalable Bayesian Neural Nets with Rank-1 Factors", section 3.
    """

    call = MemberLayer.perturbed_call

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        alpha_initializer: Any = "trainable_normal",
        gamma_initializer: Any = "trainable_normal",
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        alpha_regularizer: Any = "normal_kl_divergence",
        gamma_regularizer: Any = "normal_kl_divergence",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        alpha_constraint: Any = None,
        gamma_constraint: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        use_additive_perturbation: bool = False,
        min_perturbation_value: float | None = -10,
        max_perturbation_value: float | None = 10,
        ensemble_size: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**keyword_arguments(locals()))


class _ConvolutionRank1(MemberLayer):
    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Any = 1,
        activation: Any = None,
        use_bias: bool = True,
        alpha_initializer: Any = "trainable_normal",
        gamma_initializer: Any = "trainable_normal",
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        alpha_regularizer: Any = "normal_kl_divergence",
        gamma_regularizer: Any = "normal_kl_divergence",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        alpha_constraint: Any = None,
        gamma_constraint: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        use_additive_perturbation: bool = False,
        min_perturbation_value: float | None = -10,
        max_perturbation_value: float | None = 10,
        ensemble_size: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**keyword_arguments(locals()))


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Conv1DRank1(_ConvolutionRank1, tf.keras.layers.Conv1D):
    """1-D convolution with random rank-1 factors: `y = f(((x alpha) * W) gamma + b)`, alpha ~ q, gamma ~ q.

    Args: those of `tf.keras.layers.Conv1D`, and those of `DenseRank1`. Inputs are [K * B, time, channels], with a
    sample of S draws in force [S or 1, K * B, time, channels]. Call arguments, returns and errors as `Conv2DRank1`.

    Source: Dusenberry et al. 2020, "Efficient and Scalable Bayesian Neural Nets with Rank-1 Factors".
    """

    spatial_axes = 1
    call = MemberLayer.perturbed_call


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Conv2DRank1(_ConvolutionRank1, tf.keras.layers.Conv2D):
    """Convolution with random rank-1 factors: `y = f(((x alpha) * W) gamma + b)`, alpha ~ q, gamma ~ q.

    alpha scales input channels and gamma output channels, at all positions; `alpha` [K, channels], `gamma` and
    `ensemble_bias` [K, filters]. All else as in `DenseRank1`. With additive perturbations alpha is added before the
    padding.

    Args: those of `tf.keras.layers.Conv2D`, and those of `DenseRank1`.

    Call arguments:
        inputs: [K * B, height, width, channels], or channels_first; with a sample of S draws in force one more
            leading axis, of S or 1.
        seed, training: as `DenseRank1`.

    Returns:
        as Keras, with a leading axis of S for S draws, in the compute dtype.

    Raises:
        ValueError: as `DenseRank1`.

    Source: Dusenberry et al. 2020, "Efficient and Scalable Bayesian Neural Nets with Rank-1 Factors".
    """

    spatial_axes = 2
    call = MemberLayer.perturbed_call


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class LSTMCellRank1(LSTMMemberCell):
    """LSTM cell with random rank-1 factors, constant over a sequence.

    `gates = ((x * alpha) W) * gamma + ((h * recurrent_alpha) U) * recurrent_gamma + b`, then as
    `tf.keras.layers.LSTMCell`. Variables: `alpha` [K, I], `recurrent_alpha` [K, units], `gamma`, `recurrent_gamma`
    and `bias` [K, 4 units], K the ensemble's size; the kernels are Keras'. A random one has a mean and a stddev of
    that shape.

    Each example draws its own factors (and bias, if that is random) from those of its member. They follow from the
    variable `weight_seed`, int32 [2], which exists where anything is random: `call_weights()`, `get_initial_state`,
    `reset_dropout_mask` and so each call of `tf.keras.layers.RNN` (stateful or with an `initial_state` too) put a new
    seed there, and until then each step of a batch of the same size has the same factors. Inside
    `use_weights(sample)`, as in `VariationalRNN`, the examples of a member share the sample's factors, and the seed
    stays as it is.

    Args: those of `tf.keras.layers.LSTMCell`, dropout and `unit_forget_bias` included (the latter for a plain bias
        initializer), and for each of the four factors an initializer, regularizer and constraint;
        use_additive_perturbation, min_perturbation_value, max_perturbation_value, ensemble_size and rank as in
        `DenseRank1`.

    Call arguments:
        inputs: [K * B, I], in blocks of members; with a sample of S draws in force [S, K * B, I] or [1, K * B, I].
        states: [h, c], each [K * B, units] ([S, K * B, units] or [1, K * B, units]); a batch of 1 is shared.
        training: for dropout.
        seed: stateless seed, int32 [2], for this step, in place of `weight_seed`. Not used inside `use_weights`.

    Returns:
        output h' and [h', c'], as Keras.

    Raises:
        ValueError: as `DenseRank1`.

    Source: Dusenberry et al. 2020, "Efficient and Scalable Bayesian Neural Nets with Rank-1 Factors", section 5.3.
    """

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        alpha_initializer: Any = "trainable_normal",
        gamma_initializer: Any = "trainable_normal",
        kernel_initializer: Any = "glorot_uniform",
        recurrent_alpha_initializer: Any = "trainable_normal",
        recurrent_gamma_initializer: Any = "trainable_normal",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        alpha_regularizer: Any = "normal_kl_divergence",
        gamma_regularizer: Any = "normal_kl_divergence",
        kernel_regularizer: Any = None,
        recurrent_alpha_regularizer: Any = "normal_kl_divergence",
        recurrent_gamma_regularizer: Any = "normal_kl_divergence",
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        alpha_constraint: Any = None,
        gamma_constraint: Any = None,
        kernel_constraint: Any = None,
        recurrent_alpha_constraint: Any = None,
        recurrent_gamma_constraint: Any = None,
        recurrent_constraint: Any = None,
        bias_constraint: Any = None,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        implementation: int = 2,
        use_additive_perturbation: bool = False,
        ensemble_size: int = 1,
        min_perturbation_value: float | None = -10,
        max_perturbation_value: float | None = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(**keyword_arguments(locals()))


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class GRUCellRank1(GRUMemberCell):
    """GRU cell with random rank-1 factors; the reset gate is applied before the matrix product.

    As `LSTMCellRank1`, with three gates: `gamma`, `recurrent_gamma` and `bias` are [K, 3 units]. There is no
    `weight_seed`: without a sample in force, each step and example draws its own factors. For factors that stay over
    a sequence take `VariationalRNN(cell)`, or step it inside `use_weights(sample_weights(cell, seed))`.

    Args: those of `tf.keras.layers.GRUCell` with `reset_after=False` fixed, and those of `LSTMCellRank1`.

    Call arguments:
        inputs: [K * B, I], in blocks of members; with a sample of S draws in force [S, K * B, I] or [1, K * B, I].
        states: [K * B, units], or a list of one; with S draws [S, K * B, units] or [1, K * B, units]; a batch of 1 is
            shared.
        training: for dropout.
        seed: stateless seed, int32 [2], for this step's draws. Not used inside `use_weights`.

    Returns:
        output and new state, as Keras, the state in a list if it came in one.

    Raises:
        ValueError: reset_after=True; else as `DenseRank1`.

    Source: Dusenberry et al. 2020; Cho et al. 2014 (v1, reset before the product).
    """

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        alpha_initializer: Any = "trainable_normal",
        gamma_initializer: Any = "trainable_normal",
        kernel_initializer: Any = "glorot_uniform",
        recurrent_alpha_initializer: Any = "trainable_normal",
        recurrent_gamma_initializer: Any = "trainable_normal",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        alpha_regularizer: Any = "normal_kl_divergence",
        gamma_regularizer: Any = "normal_kl_divergence",
        kernel_regularizer: Any = None,
        recurrent_alpha_regularizer: Any = "normal_kl_divergence",
        recurrent_gamma_regularizer: Any = "normal_kl_divergence",
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        use_additive_perturbation: bool = False,
        ensemble_size: int = 1,
        min_perturbation_value: float | None = -10,
        max_perturbation_value: float | None = 10,
        **kwargs: Any,
    ) -> None:
        super().__init__(**keyword_arguments(locals()))


# In .h5 files `tf.keras.layers.RNN` names its cell without the package that it is registered under.
for _cell in (GRUCellRank1, LSTMCellRank1):
    tf.keras.utils.get_custom_objects()[_cell.__name__] = _cell

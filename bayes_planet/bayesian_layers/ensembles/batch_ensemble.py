"""BatchEnsemble: an ensemble for the price of one kernel and two vectors a member."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bayes_planet.bayesian_layers.ensembles.member_cells import GRUMemberCell, LSTMMemberCell
from bayes_planet.bayesian_layers.ensembles.member_factors import keyword_arguments
from bayes_planet.bayesian_layers.ensembles.member_layers import MemberLayer


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class DenseBatchEnsemble(MemberLayer, tf.keras.layers.Dense):
    """Dense layer of an ensemble whose members share the kernel W: `y = f(((x * alpha_k) W) * gamma_k + b_k)`.

    Member k so has the kernel `W * outer(alpha_k, gamma_k)`. The batch holds the members' examples in blocks,
    member 0's first: to show every member the same examples, tile them once, before the first such layer,
    `tf.tile(x, [ensemble_size, 1])`, after whatever shuffles a batch or splits it among replicas. With
    ensemble_size=1 and factors of 1 it is `tf.keras.layers.Dense`.

    Variables: `kernel` [I, units], `alpha` [K, I], `gamma` [K, units], `ensemble_bias` [K, units], K the ensemble's
    size. For members that differ from the start, initialize the factors with `RandomSign(0.5)`, as the paper does, or
    `tf.keras.initializers.RandomNormal(1.0, 0.5)`.

    Args: those of `tf.keras.layers.Dense`, and
        rank: number of rank-1 terms; R > 1 sums R products, and factors have a leading axis of R.
        ensemble_size: K.
        alpha_initializer, gamma_initializer: of the factors. A distribution makes a factor random as in `DenseRank1`.
        alpha_regularizer, gamma_regularizer, alpha_constraint, gamma_constraint: of the factors, as Keras'.
        bias_initializer, bias_regularizer, bias_constraint: of the members' biases.
        use_additive_perturbation, min_perturbation_value, max_perturbation_value (by keyword): as in `DenseRank1`;
            False and no bounds by default.

    Call arguments:
        inputs: [K * B, ..., I], floating; axes between share an example's factors. While a weight sample of S draws
            is in force for other layers, an input of rank 3 or more whose first axis is S or 1 is read as
            [S or 1, K * B, ..., I].
        seed: of random factors, as in `DenseRank1`.
        training: accepted and not used.

    Returns:
        [K * B, ..., units] in the compute dtype.

    Raises:
        ValueError: a batch that K does not divide (InvalidArgumentError where its size is known only when run), a
            random kernel, a size that is not a positive integer, an unknown alias.

    Source: Wen, Tran and Ba 2020, "BatchEnsemble", equations 1 to 5.
    """

    call = MemberLayer.perturbed_call

    def __init__(
        self,
        units: int,
        rank: int = 1,
        ensemble_size: int = 4,
        activation: Any = None,
        use_bias: bool = True,
        alpha_initializer: Any = "ones",
        gamma_initializer: Any = "ones",
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        alpha_regularizer: Any = None,
        gamma_regularizer: Any = None,
        alpha_constraint: Any = None,
        gamma_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**keyword_arguments(locals()))


class _ConvolutionBatchEnsemble(MemberLayer):
    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        rank: int = 1,
        ensemble_size: int = 4,
        alpha_initializer: Any = "ones",
        gamma_initializer: Any = "ones",
        strides: Any = 1,
        padding: str = "valid",
        data_format: str | None = None,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        alpha_regularizer: Any = None,
        gamma_regularizer: Any = None,
        alpha_constraint: Any = None,
        gamma_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**keyword_arguments(locals()))


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Conv1DBatchEnsemble(_ConvolutionBatchEnsemble, tf.keras.layers.Conv1D):
    """1-D convolution of an ensemble whose members share the kernel: `y = f(((x alpha_k) * W) gamma_k + b_k)`.

    Args: those of `tf.keras.layers.Conv1D`, and those of `Conv2DBatchEnsemble`. Inputs are [K * B, time, channels].
    Call arguments, returns and errors as `Conv2DBatchEnsemble`. Source: Wen, Tran and Ba 2020, "BatchEnsemble".
    """

    spatial_axes = 1
    call = MemberLayer.perturbed_call


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class Conv2DBatchEnsemble(_ConvolutionBatchEnsemble, tf.keras.layers.Conv2D):
    """Convolution of an ensemble whose members share the kernel: `y = f(((x alpha_k) * W) gamma_k + b_k)`.

    alpha_k scales input channels and gamma_k output channels, at all positions; `alpha` [K, channels], `gamma` and
    `ensemble_bias` [K, filters]. The batch is in blocks of members, as in `DenseBatchEnsemble`. With ensemble_size=1
    and factors of 1 it is the Keras layer.

    Args: those of `tf.keras.layers.Conv2D` (dilation_rate and groups by keyword), and the further ones of
        `DenseBatchEnsemble`.

    Call arguments:
        inputs: [K * B, height, width, channels], or channels_first.
        seed: of random factors, as in `DenseRank1`. training: accepted and not used.

    Returns:
        as Keras, in the compute dtype.

    Raises:
        ValueError: as `DenseBatchEnsemble`.

    Source: Wen, Tran and Ba 2020, "BatchEnsemble", section 3.
    """

    spatial_axes = 2
    call = MemberLayer.perturbed_call


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class LSTMCellBatchEnsemble(LSTMMemberCell):
    """LSTM cell of an ensemble whose members share both kernels, with factors and biases of their own.

    `kernel` and `recurrent_kernel` are those of `tf.keras.layers.LSTMCell`; member k has the kernels
    `W * outer(alpha_k, gamma_k)` and `U * outer(recurrent_alpha_k, recurrent_gamma_k)`. Variables: `alpha` [K, I],
    `recurrent_alpha` [K, units], `gamma`, `recurrent_gamma` and `bias` [K, 4 units].

    Args: those of `tf.keras.layers.LSTMCell`, and
        rank, ensemble_size, use_additive_perturbation, min_perturbation_value, max_perturbation_value: as in
            `DenseBatchEnsemble`.
        alpha_, gamma_, recurrent_alpha_, recurrent_gamma_ initializer, regularizer, constraint: of the factors.

    Call arguments, returns and errors as `LSTMCellRank1`.

    Source: Wen, Tran and Ba 2020, "BatchEnsemble".
    """

    def __init__(
        self,
        units: int,
        rank: int = 1,
        ensemble_size: int = 4,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        alpha_initializer: Any = "ones",
        gamma_initializer: Any = "ones",
        kernel_initializer: Any = "glorot_uniform",
        recurrent_alpha_initializer: Any = "ones",
        recurrent_gamma_initializer: Any = "ones",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        unit_forget_bias: bool = True,
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**keyword_arguments(locals()))


@tf.keras.utils.register_keras_serializable(package="bayes_planet")
class GRUCellBatchEnsemble(GRUMemberCell):
    """GRU cell of an ensemble whose members share both kernels; the reset gate comes before the product.

    As `LSTMCellBatchEnsemble`, with three gates: `gamma`, `recurrent_gamma` and `bias` are [K, 3 units].

    Args: those of `tf.keras.layers.GRUCell` with `reset_after=False` fixed, and those of `LSTMCellBatchEnsemble`.

    Call arguments, returns and errors as `GRUCellRank1`.

    Source: Wen, Tran and Ba 2020, "BatchEnsemble"; Cho et al. 2014 (v1).
    """

    def __init__(
        self,
        units: int,
        rank: int = 1,
        ensemble_size: int = 4,
        activation: Any = "tanh",
        recurrent_activation: Any = "sigmoid",
        use_bias: bool = True,
        alpha_initializer: Any = "ones",
        gamma_initializer: Any = "ones",
        kernel_initializer: Any = "glorot_uniform",
        recurrent_alpha_initializer: Any = "ones",
        recurrent_gamma_initializer: Any = "ones",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        recurrent_regularizer: Any = None,
        bias_regularizer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**keyword_arguments(locals()))


# In .h5 files `tf.keras.layers.RNN` names its cell without the package that it is registered under.
for _cell in (GRUCellBatchEnsemble, LSTMCellBatchEnsemble):
    tf.keras.utils.get_custom_objects()[_cell.__name__] = _cell

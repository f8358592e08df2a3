"""Muon: matrices move along the orthogonalised momentum of their gradients; everything else as Adam does."""

from typing import Any

import tensorflow as tf

from bayes_planet.training.adam import Adam

MOMENTUM = 0.95
# Root mean square of the change of an entry, in learning rates: what Adam's is.
ROOT_MEAN_SQUARE = 0.2
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


def orthogonalised(variable: tf.Variable) -> bool:
    """Whether Muon treats a variable as a matrix: two axes of more than one entry, and no stddevs of a belief."""
    parts = variable.name.partition(":")[0].split("/")
    return variable.shape.rank == 2 and min(variable.shape) > 1 and "stddev" not in parts


def orthogonal(matrix: tf.Tensor) -> tf.Tensor:
    """A matrix [n, m] with the singular vectors of the given one, and singular values near 1 (0.7 to 1.2).

    Singular values below a thousandth of the matrix's norm come out smaller. Five steps of a Newton-Schulz iteration of
    degree 5: matrix products alone, on the smaller side of the matrix.
    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks".
    """
    wide = matrix.shape[0] <= matrix.shape[1]
    x = matrix if wide else tf.transpose(matrix)
    x = x / (tf.norm(x) + 1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(ITERATIONS):
        gram = tf.matmul(x, x, transpose_b=True)
        x = a * x + tf.matmul(b * gram + c * tf.matmul(gram, gram), x)
    return x if wide else tf.transpose(x)


class Muon(Adam):
    """Adam, but for the matrices of dense and recurrent layers, which move by

        M <- 0.95 M + 0.05 G,  W <- W - matrix_learning_rate * 0.2 sqrt(max(n, m)) * orthogonal(0.95 M + 0.05 G)

    so all directions of a matrix [n, m] are learnt at one speed, those of small gradients too: what an action changes
    is small beside what a latent state predicts. Means of beliefs are matrices, their stddevs are not. Convolutions,
    biases, and layers with one output are Adam's.

    Args:
      learning_rate: Adam's.
      matrix_learning_rate: the matrices'; their entries change as much as Adam's where the two are the same.
      kwargs: Adam's, such as `epsilon`.

    Source: Jordan et al. 2024; the scale that makes its steps as large as Adam's: Liu et al. 2025, arXiv:2502.16982.
    """

    def __init__(self, learning_rate: float, matrix_learning_rate: float, name: str = "Muon", **kwargs: Any):
        super().__init__(learning_rate, name=name, **kwargs)
        self._set_hyper("matrix_learning_rate", matrix_learning_rate)

    def get_config(self) -> dict[str, Any]:
        rate = self._serialize_hyperparameter("matrix_learning_rate")
        return {**super().get_config(), "matrix_learning_rate": rate}

    def _create_slots(self, var_list: list[tf.Variable]) -> None:
        super()._create_slots([variable for variable in var_list if not orthogonalised(variable)])
        for variable in filter(orthogonalised, var_list):
            self.add_slot(variable, "m")

    def _prepare_local(self, var_device: str, var_dtype: tf.DType, apply_state: dict[Any, dict[str, Any]]) -> None:
        super()._prepare_local(var_device, var_dtype, apply_state)
        coefficients = apply_state[var_device, var_dtype]
        coefficients["momentum_t"] = tf.constant(MOMENTUM, var_dtype)
        coefficients["matrix_lr_t"] = tf.identity(self._get_hyper("matrix_learning_rate", var_dtype))
        self._idle_unless_taken(coefficients, momentum_t=1.0, matrix_lr_t=0.0)

    def _resource_apply_dense(self, grad: tf.Tensor, var: tf.Variable, apply_state: Any = None) -> tf.Operation:
        if not orthogonalised(var):
            return super()._resource_apply_dense(grad, var, apply_state)
        coefficients = apply_state[var.device, var.dtype.base_dtype]
        momentum = coefficients["momentum_t"]
        mean = self.get_slot(var, "m")
        mean = mean.assign(momentum * mean + (1.0 - momentum) * grad, use_locking=self._use_locking)
        step = orthogonal(momentum * mean + (1.0 - momentum) * grad)
        scale = coefficients["matrix_lr_t"] * (ROOT_MEAN_SQUARE * float(max(var.shape)) ** 0.5)
        return var.assign_sub(scale * step, use_locking=self._use_locking, read_value=False)

"""Which number format matrix products and convolutions use. Parameters, states and losses stay float32."""

import tensorflow as tf


def dtype_policy(precision: str) -> str:
    """The Keras dtype policy for `train.precision`: 'float32' or 'mixed_bfloat16'.

    'auto' takes bfloat16 where hardware multiplies it natively: a TPU, a GPU of compute capability 8 or
    more, or a processor with AMX or of AMD's with AVX512-BF16. Elsewhere float32 is faster: on Intel's with AVX512-BF16
    but without AMX, as virtual machines have it, an update took 1.3 to 1.4 times as long in bfloat16.
    """
    if precision == "auto":
        precision = "bfloat16" if _has_native_bfloat16() else "float32"
    return {"float32": "float32", "bfloat16": "mixed_bfloat16"}[precision]


def _has_native_bfloat16() -> bool:
    if tf.config.list_logical_devices("TPU"):
        return True
    gpus = tf.config.get_visible_devices("GPU")
    if gpus:
        details = tf.config.experimental.get_device_details(gpus[0])
        return details.get("compute_capability", (0, 0)) >= (8, 0)
    try:
        with open("/proc/cpuinfo") as file:
            return multiplies_bfloat16(file.read())
    except OSError:
        return False


def multiplies_bfloat16(processor: str) -> bool:
    """Whether a processor, as /proc/cpuinfo describes it, is faster in bfloat16 than in float32."""
    return "amx_bf16" in processor or ("avx512_bf16" in processor and "AuthenticAMD" in processor)

"""Which number format matrix products and convolutions use. Parameters, states and losses stay float32."""

import tensorflow as tf


def dtype_policy(precision: str) -> str:
    """The Keras dtype policy for `train.precision`: 'float32' or 'mixed_bfloat16'.

    'auto' takes bfloat16 where hardware multiplies it natively: a TPU, a GPU of compute capability 8 or
    more, or a processor with AMX or AVX512-BF16. Elsewhere bfloat16 is emulated and slower than float32.
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
            flags = file.read()
            return any(flag in flags for flag in ("amx_bf16", "avx512_bf16"))
    except OSError:
        return False

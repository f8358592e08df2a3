"""What has to be said to the accelerators before TensorFlow takes them."""

import tensorflow as tf


def share_gpu_memory() -> None:
    """Lets TensorFlow take GPU memory as it needs it; else it takes all, and EGL finds none to render with."""
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)

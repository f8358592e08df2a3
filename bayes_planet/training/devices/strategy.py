"""Which devices a run uses, and the tf.distribute strategy over them. To be called before TensorFlow touches any."""

import contextlib
import os

import tensorflow as tf

from bayes_planet.config import Config
from bayes_planet.runs.starts import cores
from bayes_planet.training.devices.cluster import this_process

DEVICES = ("auto", "cpu", "gpu", "tpu")
NO_TPU = "there is no TPU: no /dev/accel0 or /dev/vfio/0, and TPU_NAME is not set."
STRATEGIES = ("one_device", "mirrored", "multi_worker", "tpu")


class DeviceError(ValueError):
    """The device or strategy asked for is not here; the message says what is."""


def prepare_devices(device: str = "auto", share_cores: bool = False) -> None:
    """Hides the accelerators that are not wanted, and lets TensorFlow take GPU memory as it needs it.

    Without the latter it takes all of it, and EGL finds none to render with.

    Args:
      device: auto (GPUs where there are any, else the processor), cpu, gpu, tpu.
      share_cores: two things are computed at the same time, such as updates and the next episode. On a processor each
        operation is then spread over half of the cores: over all of them, each would wait for the other's. The
        environment variable TF_NUM_INTRAOP_THREADS goes before it.

    Raises:
      DeviceError: there is no such device, or TensorFlow uses one already.
    """
    if device not in DEVICES:
        raise DeviceError(f"--device is {device!r}. Accepted: {', '.join(DEVICES)}.")
    gpus = tf.config.list_physical_devices("GPU")
    if device == "gpu" and not gpus:
        raise DeviceError(
            "--device is gpu, but TensorFlow sees no GPU. Accepted: cpu or auto here; for a GPU, its driver and "
            '`pip install "bayes_planet[cuda]"`.'
        )
    if device == "tpu" and not _tpu_address():
        raise DeviceError(f"--device is tpu, but {NO_TPU}")
    try:
        if device == "cpu":
            tf.config.set_visible_devices([], "GPU")
        else:
            for gpu in gpus:
                tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
        raise DeviceError(f"--device {device}: TensorFlow has taken its devices already ({error}).") from error
    on_processor = device == "cpu" or not (gpus or _tpu_address())
    if share_cores and on_processor and "TF_NUM_INTRAOP_THREADS" not in os.environ:
        with contextlib.suppress(RuntimeError):  # too late, and only slower
            tf.config.threading.set_intra_op_parallelism_threads(max(1, cores() // 2))


def make_strategy(strategy: str = "one_device", device: str = "auto") -> tf.distribute.Strategy:
    """The strategy that a learner trains on.

    Args:
      strategy: one_device (TensorFlow's default strategy), mirrored (all GPUs of this machine, or its logical CPUs),
        multi_worker (one process a machine, described by the environment variable TF_CONFIG), tpu.
      device: as in `prepare_devices`, which comes first.

    Raises:
      DeviceError, ClusterError: the strategy does not fit what is here.
    """
    if strategy not in STRATEGIES:
        raise DeviceError(f"--strategy is {strategy!r}. Accepted: {', '.join(STRATEGIES)}.")
    if strategy == "tpu" or (device == "tpu" and strategy == "one_device"):
        address = _tpu_address()
        if not address:
            raise DeviceError(f"--strategy is tpu, but {NO_TPU}")
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(address)
        if address != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    if strategy == "multi_worker":
        this_process()
        return tf.distribute.MultiWorkerMirroredStrategy()
    if strategy == "mirrored":
        kind = "CPU" if device == "cpu" or not tf.config.list_logical_devices("GPU") else "GPU"
        return tf.distribute.MirroredStrategy([entry.name for entry in tf.config.list_logical_devices(kind)])
    return tf.distribute.get_strategy()


def check_batches(config: Config, strategy: tf.distribute.Strategy) -> None:
    """Raises DeviceError where the run's batches cannot be shared out among the replicas."""
    replicas = strategy.num_replicas_in_sync
    if config.train.batch_size % replicas:
        raise DeviceError(
            f"train.batch_size is {config.train.batch_size}. Accepted: a multiple of the {replicas} replicas."
        )


def uses_xla(setting: str) -> bool:
    """Whether `train.xla` means to compile: 'auto' on GPUs and TPUs, where a step is bound by kernel launches."""
    if setting != "auto":
        return setting == "always"
    return bool(tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("TPU"))


def _tpu_address() -> str:
    if os.environ.get("TPU_NAME"):
        return os.environ["TPU_NAME"]
    local = any(os.path.exists(path) for path in ("/dev/accel0", "/dev/vfio/0"))
    return "local" if local else ""

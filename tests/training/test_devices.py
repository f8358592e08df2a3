"""Devices, strategies and clusters: what is asked for and not there is refused with what is."""

import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from bayes_planet.runs.starts import cores
from bayes_planet.training.devices.cluster import ClusterError, Process, this_process
from bayes_planet.training.devices.strategy import DeviceError, make_strategy, prepare_devices, uses_xla

NO_GPU = not tf.config.list_physical_devices("GPU")


def cluster(task: dict, **hosts: int) -> dict[str, str]:
    described = {"cluster": {name: [f"h{i}:1" for i in range(count)] for name, count in hosts.items()}, "task": task}
    return {"TF_CONFIG": json.dumps(described)}


@pytest.mark.parametrize(
    ("task", "hosts", "expected"),
    [
        ({"type": "worker", "index": 0}, {"worker": 2}, Process(0, 2)),
        ({"type": "worker", "index": 1}, {"worker": 2}, Process(1, 2)),
        ({"type": "chief", "index": 0}, {"chief": 1, "worker": 2}, Process(0, 3)),
        ({"type": "worker", "index": 1}, {"chief": 1, "worker": 2}, Process(2, 3)),
    ],
)
def test_the_first_process_of_a_cluster_is_the_chief(task, hosts, expected):
    process = this_process(cluster(task, **hosts))
    assert process == expected and process.chief == (expected.index == 0)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "TF_CONFIG is ''"),
        ({"TF_CONFIG": "{"}, "TF_CONFIG is '{'"),
        ({"TF_CONFIG": "[]"}, "host0:2222"),
        (cluster({"type": "worker", "index": 0}, worker=1), "names 1 processes"),
        (cluster({"type": "worker", "index": 5}, worker=2), "number 5"),
    ],
)
def test_a_cluster_that_is_none_is_refused(environment, message):
    with pytest.raises(ClusterError, match=message):
        this_process(environment)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(DeviceError, match="auto, cpu, gpu, tpu"):
        prepare_devices("cuda")
    with pytest.raises(DeviceError, match="one_device, mirrored, multi_worker, tpu"):
        make_strategy("horovod")


@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
def test_accelerators_that_are_not_there_are_refused(monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(DeviceError, match=r"sees no GPU.*bayes_planet\[cuda\]"):
        prepare_devices("gpu")
    for ask in (lambda: prepare_devices("tpu"), lambda: make_strategy("tpu")):
        with pytest.raises(DeviceError, match="TPU_NAME is not set"):
            ask()
    prepare_devices("auto")
    assert not uses_xla("auto") and uses_xla("always") and not uses_xla("never")


def test_one_machine_gives_the_strategy_asked_for():
    assert make_strategy() is tf.distribute.get_strategy()
    mirrored = make_strategy("mirrored", "cpu")
    assert isinstance(mirrored, tf.distribute.MirroredStrategy) and mirrored.num_replicas_in_sync == 1


@pytest.mark.thorough
@pytest.mark.skipif(not NO_GPU, reason="there is a GPU")
@pytest.mark.parametrize(
    ("share", "chosen", "expected"), [("True", None, "half"), ("False", None, 0), ("True", "3", 0)]
)
def test_two_computations_at_a_time_share_the_cores(share, chosen, expected):
    program = (
        "import tensorflow as tf; from bayes_planet.training.devices.strategy import prepare_devices; "
        f"prepare_devices(share_cores={share}); print(tf.config.threading.get_intra_op_parallelism_threads())"
    )
    environment = {key: value for key, value in os.environ.items() if key != "TF_NUM_INTRAOP_THREADS"}
    if chosen:
        environment["TF_NUM_INTRAOP_THREADS"] = chosen
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert int(printed.split()[-1]) == (max(1, cores() // 2) if expected == "half" else expected)

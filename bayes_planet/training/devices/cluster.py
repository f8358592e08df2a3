"""Several processes that train together, as the environment variable TF_CONFIG describes them. No TensorFlow here."""

import dataclasses
import json
import os
from collections.abc import Mapping

EXAMPLE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'


class ClusterError(ValueError):
    """TF_CONFIG does not describe a cluster with this process in it."""


@dataclasses.dataclass(frozen=True)
class Process:
    """This process among those that train together: the first one (chief) collects, evaluates and writes."""

    index: int
    count: int

    @property
    def chief(self) -> bool:
        return self.index == 0


def this_process(environment: Mapping[str, str] = os.environ) -> Process:
    """Reads TF_CONFIG.

    Raises:
      ClusterError: it is missing or wrong; the message shows a right one.
    """
    text = environment.get("TF_CONFIG", "")
    try:
        described = json.loads(text)
        chiefs = len(described["cluster"].get("chief", []))
        count = chiefs + len(described["cluster"]["worker"])
        index = int(described["task"]["index"]) + (chiefs if described["task"]["type"] == "worker" else 0)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise ClusterError(
            f"--strategy is multi_worker, but TF_CONFIG is {text[:200]!r}. Accepted: on each host its own, such as "
            f"{EXAMPLE}"
        ) from None
    if count < 2 or not 0 <= index < count:
        raise ClusterError(
            f"TF_CONFIG names {count} processes, this one is number {index}. Accepted: 2 or more, and this one of "
            "them. For one machine with several GPUs use --strategy mirrored."
        )
    return Process(index, count)

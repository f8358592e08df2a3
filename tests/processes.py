"""With `pytest -n`, a test process that has come to hold much memory ends, and a new one takes the files that are left.

TensorFlow keeps most of what a process has traced and compiled until the process ends.
"""

import psutil
from xdist.dsession import DSession
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

MOST_BYTES = 1.8e9  # a process with all tests collected has 0.8 GB, and one file adds up to 1


class FreshProcesses(LoadFileScheduling):
    """`--dist=loadfile`, whose processes end after the file in which they exceed `MOST_BYTES`."""

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:  # a new one, which has not collected its tests yet
            return
        # So few that xdist gives the process its next file; a process runs a test once it knows the one after.
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) <= 2:
            if self.workqueue and bytes_of(node) > MOST_BYTES:
                node.shutdown()  # after the tests that it has
                session: DSession = self.config.pluginmanager.getplugin("dsession")
                session._clone_node(node)
            else:
                super()._reschedule(node)


def bytes_of(node: WorkerController) -> int:
    """Resident memory of a test process; 0 once it has crashed."""
    try:
        return psutil.Process(node.gateway._rinfo().pid).memory_info().rss
    except psutil.NoSuchProcess:
        return 0

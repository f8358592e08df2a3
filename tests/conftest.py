"""What every test shares: quiet libraries, and the same hypothesis examples on every machine."""

import fcntl
import importlib.util
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import hypothesis
import pytest

import bayes_planet  # noqa: F401  (selects Keras 2 before any test file imports TensorFlow)

# A job in the background of a script ignores Ctrl-C, and so would what the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# Test processes start with this: memory that threads give back is for all of them.
os.environ.setdefault("MALLOC_ARENA_MAX", "2")
# Programs under test are compiled to be run once or twice: LLVM need not make them fast.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

hypothesis.settings.register_profile(
    "tests", deadline=None, derandomize=True, database=None, max_examples=30, print_blob=True
)
hypothesis.settings.load_profile("tests")


WITHOUT_TF_AGENTS = importlib.util.find_spec("tf_agents") is None
NEEDS_TF_AGENTS = ("test_export.py",)  # beside those that import it themselves


def pytest_report_header() -> str | None:
    return "without TF-Agents: tests that need it are left out" if WITHOUT_TF_AGENTS else None


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """TF-Agents is optional: without it, the files that import it are left out."""
    if WITHOUT_TF_AGENTS and collection_path.suffix == ".py":
        needs = "\nfrom tf_agents" in collection_path.read_text(encoding="utf-8")
        return True if needs or collection_path.name in NEEDS_TF_AGENTS else None
    return None


def pytest_collection_finish(session: pytest.Session) -> None:
    """TensorFlow runs graphs as they are traced: most run once, and rewriting one takes a third of its first call.

    Processes that tests start rewrite theirs, as do tests that are asked for with `-m slow`.
    """
    if "tensorflow" in sys.modules and session.config.option.markexpr not in ("", "slow"):
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log):
    """With `-n`: see `processes`."""
    from tests import processes

    return processes.FreshProcesses(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error) -> None:
    """A process whose tests are done ends now, not with the last one."""
    node.gateway.exit()


@pytest.fixture(scope="session")
def run(tmp_path_factory, worker_id) -> tuple[Path, subprocess.CompletedProcess]:
    """The folder of one tiny trained run and the process that trained it, for all tests that only read it.

    The test processes of `pytest -n` share it: the first one that needs it trains it.
    """
    from tests.commands.program import finished, train_command

    base = tmp_path_factory.getbasetemp()
    folder = base if worker_id == "master" else base.parent  # of this test process, or of all of them
    logdir, done = folder / "uninterrupted" / "run", folder / "finished.pickle"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            done.write_bytes(pickle.dumps(finished(train_command(logdir), TF_CPP_MIN_LOG_LEVEL="0")))
    return logdir, pickle.loads(done.read_bytes())


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)

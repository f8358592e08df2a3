"""A process with TensorFlow, and without this package and the libraries it builds on: `import` of these fails.

`python tensorflow_only.py` answers pickled requests on stdin, (name, arguments), until stdin ends; `Process` asks.
"""

import collections
import contextlib
import os
import pickle
import subprocess
import sys

FORBIDDEN = {"bayes_planet", "tf_agents", "tensorflow_probability", "tf_keras"}


class Process:
    """The asking side. `environment` is added to the process's environment variables."""

    def __init__(self, **environment):
        self._process = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={key: value for key, value in os.environ.items() if key != "TF_USE_LEGACY_KERAS"} | environment,
            cwd="/",
        )

    def ask(self, name, *arguments):
        """What the function of this name, below, returns; its exception is raised here."""
        pickle.dump((name, arguments), self._process.stdin)
        self._process.stdin.flush()
        answer = pickle.load(self._process.stdout)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        self._process.stdin.close()
        self._process.wait(60)


class Policy:
    """The answering side: a loaded SavedModel, and what the tests ask of it."""

    def __init__(self):
        import tensorflow as tf

        self._tf = tf
        # TF-Agents' own TimeStep cannot be imported: a tuple of this name and these fields stands for it.
        self._time_step = collections.namedtuple("TimeStep", "step_type reward discount observation")
        self._loaded = None

    def load(self, folder):
        self._loaded = self._tf.saved_model.load(folder)
        return int(self._loaded.get_train_step())

    def get_initial_state(self, *batch_size):
        return self._arrays(self._loaded.get_initial_state(*batch_size))

    def action(self, observation, is_first, state):
        """(actions, next state) as arrays."""
        import numpy as np

        rows = len(is_first)
        kinds = np.where(is_first, 0, 1).astype(np.int32)
        step = self._time_step(kinds, np.zeros(rows, np.float32), np.ones(rows, np.float32), observation)
        action, state, info = self._loaded.action(step, state)
        assert info == ()
        return action.numpy(), self._arrays(state)

    def signature(self, name, inputs):
        """The answer of a flat function to tensors by name."""
        return self._arrays(self._loaded.signatures[name](**self._tf.nest.map_structure(self._tf.constant, inputs)))

    def run(self, code, folder):
        """Runs Python code in a folder and gives its variables that are arrays."""
        import numpy as np

        names = {}
        with contextlib.chdir(folder):
            exec(compile(code, "snippet", "exec"), names)
        return {name: value for name, value in names.items() if isinstance(value, (np.ndarray, float))}

    def forbidden_modules(self):
        return [name for name in sys.modules if name.partition(".")[0] in FORBIDDEN]

    def _arrays(self, nest):
        return {key: value.numpy() for key, value in nest.items()}


class _Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in FORBIDDEN:
            raise ModuleNotFoundError(f"{name} must not be imported here")


def _answer():
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else is printed
    sys.meta_path.insert(0, _Forbid())
    policy = Policy()
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = getattr(policy, name)(*arguments)
        except Exception as error:
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    _answer()

"""The README.md of an exported policy: how to run it where nothing but TensorFlow and NumPy is installed."""

import string

README = string.Template('''# A policy for $task

Written by `bayes-planet export` after $updates updates, without exploration noise, in $precision, for $batch. It needs
TensorFlow and NumPy, and nothing of the library that wrote it. `policy.json` has the environment's settings, all
shapes, and versions.

```python
import collections

import numpy as np
import tensorflow as tf

policy = tf.saved_model.load(".")  # this folder
TimeStep = collections.namedtuple("TimeStep", "step_type reward discount observation")  # this name, these fields


def act(observation, is_first, state):
    """(actions [B, $action_size], next state) for observations with a batch axis; is_first: bool [B]."""
    is_first = np.asarray(is_first)
    step = TimeStep(
        step_type=np.where(is_first, 0, 1).astype(np.int32),
        reward=np.zeros(is_first.shape, np.float32),  # not read
        discount=np.ones(is_first.shape, np.float32),  # not read
        observation=observation,
    )
    action, state, _ = policy.action(step, state)
    return action.numpy(), state


state = policy.get_initial_state($initial)
state = {**state, "seed": np.array($seeds, np.int32)}  # which random numbers the planner draws
observation = $observation
action, state = act(observation, $first, state)  # the first step of an episode
action, state = act(observation, ~np.array($first), state)  # all others
```

**Actions** are in [-1, 1]: map them linearly onto the bounds of the task, and hold each for $repeat environment
step(s).

**State.** Hand the `state` of a step to the next one. It forgets the past where `is_first`. `seed` int32 [B, 2] is
never forgotten: its first number is yours to choose, the second counts decisions. Equal states and observations give
equal actions.

**Without Python** (TensorFlow Serving, C++): the signatures `action` and `get_initial_state` take and give flat
tensors, whose names are in `policy.json`.
''')

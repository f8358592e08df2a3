"""From TF-Agents trajectories to the rows that the world model is trained on: the one place of the time shift."""

import tensorflow as tf
from tf_agents.trajectories import trajectory

from bayes_planet.agents.tf_agent import specs


def model_batch(experience: trajectory.Trajectory) -> dict[str, tf.Tensor]:
    """Shifts actions and rewards to the observation they led to, and masks what the chunk does not tell.

    Row t of a trajectory holds what follows its observation, row t of the world model what led to it:

        trajectory   (o_t, a_t,     r_{t+1})
        model        (o_t, a_{t-1}, r_t)

    An episode of n actions is n + 1 rows in both: TF-Agents ends it with a boundary row (step type LAST), whose
    observation is the last one and whose own action and reward belong to no step.

    Args:
      experience: a chunk [B, T, ...] or [T, ...] as a replay buffer gives it: it may start anywhere and cross
        boundaries of episodes.

    Returns:
      'image' and/or 'state' [B, T, ...] as given, 'action' float32 [B, T, A], 'reward' float32 [B, T], 'is_terminal'
      bool [B, T] (the task ended the episode there: discount 0) and 'mask' bool [B, T]. The mask is false, and action,
      reward and is_terminal are zero, in

        - row 0, unless an episode starts there (then zeros are the truth, and the mask is true). What led to it
          lies before the chunk; the observation still warms up the filter.
        - all rows after the first end or start of an episode within the chunk.
    """
    first, last = experience.is_first(), experience.is_boundary()
    starts_anew = first[..., 1:] | last[..., :-1]
    left = tf.cumsum(tf.cast(starts_anew, tf.int32), axis=-1) > 0
    mask = tf.concat([first[..., :1], ~left], -1)

    action = tf.cast(experience.action, tf.float32)
    reward = tf.cast(experience.reward, tf.float32)
    action = tf.concat([tf.zeros_like(action[..., :1, :]), action[..., :-1, :]], -2)
    reward = tf.concat([tf.zeros_like(reward[..., :1]), reward[..., :-1]], -1)
    ended = experience.discount == 0.0
    ended = tf.concat([tf.zeros_like(ended[..., :1]), ended[..., :-1]], -1)
    return {
        **specs.as_dict(experience.observation),
        "action": tf.where(mask[..., None], action, tf.zeros_like(action)),
        "reward": tf.where(mask, reward, tf.zeros_like(reward)),
        "is_terminal": ended & mask,
        "mask": mask,
    }

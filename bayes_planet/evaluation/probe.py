"""What the latent state knows: the simulator's velocities, read out of it by a linear and a small neural probe.

One image shows no velocity, so a probe that reads it shows that the state has put frames together.
Source: Bayesian Layers v1, Fig. 13; Alain and Bengio 2016, "Understanding intermediate layers" (linear probes).
"""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bayes_planet.collecting.rollout import Episode
from bayes_planet.world_model import WorldModel

KINDS = ("linear", "mlp")
PARTS = ("belief", "sample", "both")
SKIPPED = 5  # rows of an episode after which the filter has seen enough to know velocities
LEAST_ROWS = 2  # after these, for an episode to count: one row has no spread to fit a probe to


@dataclasses.dataclass(frozen=True)
class Probe:
    """One probe's cross-validated predictions.

    Attributes:
      r2: [J], share of each target's variance that is explained, over all episodes: 1 perfect, 0 as good as the mean.
      predicted: [T_i, J] for each episode, by a probe that was fitted to other episodes alone.
    """

    r2: np.ndarray
    predicted: tuple[np.ndarray, ...]

    @property
    def mean_r2(self) -> float:
        return float(np.mean(self.r2))


def fit_probe(
    features: Sequence[np.ndarray],
    targets: Sequence[np.ndarray],
    kind: str = "linear",
    folds: int = 5,
    seed: int = 0,
) -> Probe:
    """Predicts targets from features, cross-validated by episode.

    Rows of one episode resemble each other, so whole episodes are held out. Both sides are standardised by the
    training episodes' mean and stddev.

    Args:
      features: [T_i, F] for each of two or more episodes, T_i >= 2. Others without rows (T_i = 0) count for nothing.
      targets: [T_i, J] for each.
      kind: 'linear' (ridge; its penalty is chosen by cross-validation among the training episodes) or 'mlp' (one hidden
        layer of 64 relu units, stopped early).
      folds: the largest number of them; there are no more than episodes.
      seed: of the MLP's weights and batches.

    Raises:
      ValueError: fewer than two episodes, rows that do not match, numbers that are not finite, another kind.
    """
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}. Accepted: {' or '.join(KINDS)}.")
    filled = sum(len(one) > 0 for one in features)
    if len(features) != len(targets) or filled < 2:
        raise ValueError(
            f"There are features of {filled} episodes with rows and targets of {len(targets)}. Accepted: the same "
            "episodes, two or more with rows, as whole episodes are held out."
        )
    rows = [len(one) for one in features]
    if rows != [len(one) for one in targets]:
        raise ValueError(f"Features have {rows} rows, targets {[len(one) for one in targets]}. Accepted: the same.")
    x, y = np.concatenate(features).astype(np.float64), np.concatenate(targets).astype(np.float64)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("Features or targets have values that are not finite. Accepted: finite numbers.")
    # Here: importing it costs 1 s that most readers of this package do not need.
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.model_selection import GroupKFold
    from threadpoolctl import threadpool_limits

    groups = np.repeat(np.arange(len(rows)), rows)
    predicted = np.empty_like(y)
    # One thread: for products this small, threads cost more than they do, and far more beside a training run.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for train, test in GroupKFold(min(folds, filled)).split(x, y, groups):
            target = y[train] if y.shape[1] > 1 else y[train, 0]
            model = _regressor(kind, seed, groups[train])
            predicted[test] = model.fit(x[train], target).predict(x[test]).reshape(len(test), -1)
    return Probe(r_squared(y, predicted), tuple(np.split(predicted, np.cumsum(rows)[:-1])))


def r_squared(true: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """1 - squared error / squared distance from the mean, for each column of [N, J]; 0 for a constant column."""
    from sklearn.metrics import r2_score

    moves = np.ptp(true, 0) > 0
    values = np.zeros(true.shape[1])
    if moves.any():
        values[moves] = r2_score(true[:, moves], predicted[:, moves], multioutput="raw_values")
    return values


def _regressor(kind: str, seed: int, groups: np.ndarray) -> Any:
    """The probe for training rows of these episodes [N]."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import GroupKFold
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if kind == "linear":
        # Row by row, the penalty would be chosen too small: a left-out row has neighbours that resemble it.
        episodes = len(np.unique(groups))
        inner_folds = list(GroupKFold(min(5, episodes)).split(groups, groups=groups)) if episodes > 1 else None
        # Not by R^2, which in an episode that hardly moves is decided by nothing.
        inner: Any = RidgeCV(np.logspace(-2, 6, 9), cv=inner_folds, scoring="neg_mean_squared_error")
    else:
        # The penalty is large on purpose: with less, it fits the noise of a few episodes of 200 latent dimensions.
        # Stopping early takes a tenth of the rows for validation, which must be some.
        inner = MLPRegressor(hidden_layer_sizes=(64,), alpha=10.0, early_stopping=len(groups) >= 100, random_state=seed)
    return TransformedTargetRegressor(make_pipeline(StandardScaler(), inner), transformer=StandardScaler())


def latents(
    world_model: WorldModel, episodes: Sequence[Episode], seed: np.ndarray | tf.Tensor
) -> list[dict[str, np.ndarray]]:
    """The filtered latent state at every row of each episode, under the posterior mean of the weights.

    Episodes of any lengths: shorter ones are filled up after their last row, which no earlier state has seen, so that
    the filter is traced once.

    Returns:
      For each episode 'belief' [T + 1, H], 'sample' [T + 1, Z] and 'both' [T + 1, H + Z], float32.
    """
    seed = tf.convert_to_tensor(seed)
    found = []
    longest = max((len(episode["action"]) for episode in episodes), default=0)
    for number, episode in enumerate(episodes):
        rows = len(episode["action"])
        batch = {
            key: tf.convert_to_tensor(_filled_up(episode[key], longest)[None])
            for key in (*world_model.observation_shapes, "action")
        }
        belief, sample = _filter(world_model, batch, tf.random.experimental.stateless_fold_in(seed, number))
        values = {"belief": belief.numpy()[0, :rows], "sample": sample.numpy()[0, :rows]}
        found.append({**values, "both": np.concatenate([values["belief"], values["sample"]], 1)})
    return found


def _filled_up(values: np.ndarray, rows: int) -> np.ndarray:
    """[T, ...] -> [rows, ...], the last row repeated."""
    return np.pad(values, [(0, rows - len(values)), *[(0, 0)] * (values.ndim - 1)], mode="edge")


@tf.function(autograph=False)
def _filter(world_model: WorldModel, batch: dict, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    posterior, _ = world_model.observe(batch, seed)
    return posterior.belief, posterior.sample


@dataclasses.dataclass(frozen=True)
class VelocityProbe:
    """Probes of all kinds on all parts of the latent state.

    Attributes:
      probes: by part ('belief', 'sample', 'both') and kind ('linear', 'mlp'). A model without a belief or without a
        sample, which has size 0 then, has no probe of it.
      control: the linear probe of 'both' on the velocities of another episode: what chance and a common gait give.
      true: [T_i, J] velocities for each used episode, without the first `skipped` rows, as of the probes' predictions.
      skipped: first rows of each episode that are left out.
      episodes: the used ones, by their place among those that were given: those of two or more rows after these.
    """

    probes: Mapping[str, Mapping[str, Probe]]
    control: Probe
    true: tuple[np.ndarray, ...]
    skipped: int
    episodes: tuple[int, ...]


def long_enough(velocities: Sequence[np.ndarray], skip: int = SKIPPED) -> tuple[int, ...]:
    """Places of the episodes that have two or more rows after the first `skip`; a probe needs two such episodes."""
    return tuple(place for place, values in enumerate(velocities) if len(values) >= skip + LEAST_ROWS)


def probe_velocities(
    world_model: WorldModel,
    episodes: Sequence[Episode],
    velocities: Sequence[np.ndarray],
    seed: np.ndarray | tf.Tensor,
    skip: int = SKIPPED,
    kinds: Sequence[str] = KINDS,
    folds: int = 5,
) -> VelocityProbe:
    """Reads velocities out of the latent state of held-out episodes.

    Args:
      world_model: any of this package.
      episodes: none of which the model was trained on. Those of fewer than `skip` + 2 rows are left out.
      velocities: [T_i + 1, J] for each, row by row as the episode.
      seed: int32 [2], of the filter's noise; the probes' is its first word.
      skip: first rows of each episode to leave out, while the filter has seen too little to know.
      kinds, folds: see `fit_probe`.

    Raises:
      ValueError: fewer than two episodes of `skip` + 2 rows; belief and sample both of size 0.
    """
    used = long_enough(velocities, skip)
    if len(used) < 2:
        raise ValueError(
            f"{len(used)} of {len(velocities)} episodes have {skip + LEAST_ROWS} rows or more, of which {skip} do not "
            "count. Accepted: two or more, as whole episodes are held out."
        )
    states = latents(world_model, [episodes[place] for place in used], seed)
    parts = [part for part in PARTS if states[0][part].shape[1]]
    if not parts:
        raise ValueError("The model's belief and sample both have size 0. Accepted: a latent state of some size.")
    true = [np.asarray(velocities[place])[skip:] for place in used]
    word = int(np.asarray(seed)[0])

    def fit(part: str, targets: Sequence[np.ndarray], kind: str) -> Probe:
        return fit_probe([state[part][skip:] for state in states], targets, kind, folds, word)

    probes = {part: {kind: fit(part, true, kind) for kind in kinds} for part in parts}
    others = [*true[1:], true[0]]
    common = [min(len(one), len(other)) for one, other in zip(true, others, strict=True)]
    features = [state["both"][skip:][:rows] for state, rows in zip(states, common, strict=True)]
    others = [other[:rows] for other, rows in zip(others, common, strict=True)]
    control = fit_probe(features, others, "linear", folds, word)
    return VelocityProbe(probes, control, tuple(true), skip, used)

"""Episodes on disk and the sequence batches drawn from them. NumPy only: never imports TensorFlow."""

from bayes_planet.replay.episode import CorruptEpisodeError as CorruptEpisodeError
from bayes_planet.replay.episode import episode_return as episode_return
from bayes_planet.replay.prefetch import Prefetcher as Prefetcher
from bayes_planet.replay.store import EpisodeStore as EpisodeStore

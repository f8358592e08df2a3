"""What acts in latent states: the actor network, values, and what they learn from the replay or in imagination."""

from bayes_planet.behaviour.model import BehaviourModel

__all__ = ["BehaviourModel"]

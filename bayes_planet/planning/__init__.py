"""Planning in latent space with the cross-entropy method, and the policy that filters, plans and acts."""

from bayes_planet.planning.actor import Actor, ActorState
from bayes_planet.planning.cem import Plan, cross_entropy_method
from bayes_planet.planning.planner import Planner, candidate_counts

__all__ = ["Actor", "ActorState", "Plan", "Planner", "candidate_counts", "cross_entropy_method"]

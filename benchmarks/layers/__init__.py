"""What the Bayesian layers predict, how they start and learn, and what that costs."""

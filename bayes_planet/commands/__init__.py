"""What each command of `bayes-planet` does. Here the parts come together: environments, agent, trainer, terminal."""

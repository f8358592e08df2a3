"""How well plans are ranked and carried out, by learned models and by the true simulator."""

"""What the figures of a model call things, and in which units."""

NAMES = {"model": "model", "reference": "reference run", "repeat": "repeat the last one"}
QUANTITIES = {"image": "image", "state": "state", "reward": "reward", "latent": "latent state"}
ERROR_UNITS = {
    "image": "squared error a pixel,\nblack to white = 1",
    "state": "squared error a dimension,\nstddev over the replay = 1",
    "reward": "squared error,\nreward² of an agent step",
    "latent": "squared distance from\nthe filter, a dimension",
}
NOISES = {"none": "no observation noise", "fitted": "fitted noise", "unit": "unit noise (the training likelihood)"}

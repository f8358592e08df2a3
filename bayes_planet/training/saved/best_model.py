"""best_model/ in a run's folder: the agent of the best evaluation so far, as a saved model."""

from collections.abc import Callable

from bayes_planet.evaluation.score import Score
from bayes_planet.files.folders import recover_folder
from bayes_planet.runs.checkpoints import CheckpointError
from bayes_planet.runs.run_directory import RunDirectory
from bayes_planet.training.build import Agent
from bayes_planet.training.saved import saved_model


def keep_best(
    directory: RunDirectory,
    agent: Agent,
    score: Score,
    progress: saved_model.Progress,
    note: Callable[[str], None],
) -> None:
    """Saves the agent in best_model/, without its optimizer, if `score` has a higher mean than the one there.

    The best of many agents is chosen by its luckiest evaluation, so its true return is lower: evaluate it again for a
    number to publish. The returns it was chosen by are in its model.json.

    Args:
      directory: the run's, which has its config.yaml and spaces.json.
      progress: 'episodes', 'env_steps' and 'updates' so far.
      note: told where it cannot be saved, which leaves the older one untouched.
    """
    spaces, best = directory.read_spaces(), RunDirectory(directory.best_model)
    try:
        recover_folder(best.path)  # else, after a kill in the middle of a replacement, any score would be the best
        known = (best.saved_model() or {}).get("evaluation", {})
        if spaces is None or score.mean <= known.get("return_mean", -float("inf")):
            return
        evaluation = {"return_mean": score.mean, "returns": list(score.returns)}
        config = directory.read_config()
        saved_model.save(best.path, config, agent, spaces, progress, optimizer=False, evaluation=evaluation)
    except (CheckpointError, OSError, ValueError) as error:
        note(f"The best model so far could not be saved in {best.path}, training goes on: {error}")

"""What the command line takes, with its help texts. Imports nothing heavy: `bayes-planet --help` takes no time."""

from typing import TYPE_CHECKING

import bayes_planet

if TYPE_CHECKING:
    import argparse


def parser() -> "argparse.ArgumentParser":
    """The whole command line, with its help texts."""
    # Here, as all that takes time: until `program` runs, Ctrl-C prints a traceback.
    import argparse
    from pathlib import Path

    def path(text: str) -> Path:
        if not text:  # Path("") is the current folder, which nobody means who writes --logdir "$UNSET"
            raise argparse.ArgumentTypeError("it is empty. Accepted: a path; . is the current folder")
        return Path(text)

    top = argparse.ArgumentParser(
        prog="bayes-planet",
        description="Bayesian PlaNet: a latent world model from pixels, a belief over its weights, and a planner.",
    )
    top.add_argument("--version", action="version", version=f"bayes-planet {bayes_planet.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    train = commands.add_parser(
        "train",
        help="train an agent, or go on with a run",
        description="Train an agent. The same command on the same --logdir goes on where the run stopped.",
    )
    train.add_argument(
        "--config",
        nargs="+",
        default=["bayes_planet"],
        metavar="PRESET",
        help="presets or YAML files, later ones win (see `bayes-planet configs`); default: bayes_planet",
    )
    train.add_argument("--logdir", required=True, type=path, help="the run's folder; made if missing")
    train.add_argument(
        "--device",
        default="auto",
        metavar="NAME",
        help="auto (GPUs if there are any, else the processor), cpu, gpu, tpu; default: auto",
    )
    train.add_argument(
        "--strategy",
        default="one_device",
        metavar="NAME",
        help="one_device, mirrored (all GPUs of this machine), multi_worker (TF_CONFIG says which hosts), tpu; "
        "default: one_device",
    )
    train.add_argument(
        "--change",
        action="store_true",
        help="a run that is there goes on with the settings given now where they are others: planner, loss, learning "
        "rate, exploration noise (starts.json keeps what changed when)",
    )
    train.add_argument(
        "overrides", nargs="*", metavar="key=value", help="single settings, such as seed=1 train.batch_size=16"
    )

    sweep = commands.add_parser(
        "sweep",
        help="train many runs: presets and settings times lists",
        description="Train one run for each combination of what is listed, in folders of their own. The same command "
        "goes on with what is not done. Lists are as of Hydra's multirun: seed=0,1,2 'seed=range(0,3)'.",
    )
    sweep.add_argument(
        "items",
        nargs="+",
        metavar="ITEM",
        help="PRESET, or method=PRESET,PRESET (also task=, env=, size=), or key=value,value; such as debug seed=0,1,2 "
        "env=cheetah_run,walker_walk method=planet,bayes_planet",
    )
    sweep.add_argument(
        "--runs", required=True, type=path, metavar="FOLDER", help="gets a folder a run; made if missing"
    )
    sweep.add_argument(
        "--retries", type=_count, default=2, metavar="N", help="how often a run that fails is tried again (default: 2)"
    )
    sweep.add_argument(
        "--at-once", type=_count, metavar="N", help="runs at the same time (default: as cores and memory allow)"
    )
    sweep.add_argument(
        "--cores", type=_count, metavar="N", help="cores of a run (default: an equal share with --at-once, else 2)"
    )
    sweep.add_argument("--device", default="auto", metavar="NAME", help="as of train (default: auto)")
    sweep.add_argument(
        "--slurm",
        nargs="?",
        const="",
        metavar="KEY=VALUE,...",
        help="as an array of SLURM jobs; options of submitit, such as timeout_min=600,slurm_partition=gpu; "
        "cluster=local tries it on this machine (extra [slurm])",
    )
    sweep.add_argument("--ray", metavar="ADDRESS", help="on a Ray cluster: auto, ray://HOST:PORT, local (extra [ray])")
    sweep.add_argument(
        "--ray-gpus",
        type=float,
        default=0.0,
        metavar="N",
        help="with --ray, GPUs of a run, such as 1 or 0.5 (default: 0)",
    )
    sweep.add_argument("--show", action="store_true", help="print the table of runs, and start nothing")

    evaluate = commands.add_parser(
        "evaluate",
        help="run a trained agent without noise",
        description="Run noise-free episodes with the newest checkpoint of a run.",
    )
    evaluate.add_argument("run", type=path, help="the folder of a training run")
    evaluate.add_argument(
        "--episodes", type=_count, default=10, help="episodes, each with its own environment seed (default: 10)"
    )
    evaluate.add_argument(
        "--seed", type=_number, default=0, help="seed of the environments and of the planner (default: 0)"
    )
    evaluate.add_argument(
        "--video", type=path, metavar="FILE", help="write what the agent does in the first episode, .mp4 or .gif"
    )
    evaluate.add_argument(
        "--open-loop",
        type=path,
        metavar="FILE",
        help="write true, predicted and error frames side by side, .mp4 or .gif",
    )
    evaluate.add_argument("--json", action="store_true", help="print the result as JSON")
    evaluate.add_argument(
        "--planner",
        nargs="+",
        default=[],
        metavar="key=value",
        help="another search for this evaluation, such as horizon=20 candidates=128; the run is left as it is",
    )

    analyse = commands.add_parser(
        "analyse",
        help="measure what the world model of a run knows",
        description="Open-loop prediction in numbers, velocity probe, uncertainty and its calibration, on held-out "
        "episodes with the newest checkpoint of a run. The result is kept in RUN/analysis, where `report` finds it.",
    )
    analyse.add_argument("run", type=path, help="the folder of a training run")
    analyse.add_argument("--episodes", type=_count, default=10, help="held-out episodes to collect (default: 10)")
    analyse.add_argument(
        "--reference",
        type=path,
        metavar="RUN2",
        help="another run to compare with, such as one with deterministic weights",
    )
    analyse.add_argument(
        "--seed", type=_number, default=0, help="seed of the environments and of every draw (default: 0)"
    )
    analyse.add_argument("--json", action="store_true", help="print the numbers as JSON")

    report = commands.add_parser(
        "report",
        help="write one HTML page about runs",
        description="Write one self-contained HTML page about a run, or about several, grouped by method and task.",
    )
    report.add_argument(
        "runs", nargs="+", type=path, metavar="RUN", help="folders of training runs, in any state, or of a sweep"
    )
    report.add_argument(
        "--out", type=path, metavar="FILE", help="the page; default: report.html, in the run if there is one, else here"
    )
    report.add_argument(
        "--group",
        nargs="+",
        default=[],
        metavar="KEY",
        help="settings whose values make the groups, such as model.bayesian.kl_scale; default: all that make a method",
    )
    report.add_argument(
        "--detailed",
        type=_count,
        default=8,
        metavar="N",
        help="of several runs, how many have their own figures on the page (default: 8)",
    )
    report.add_argument(
        "--figures", type=path, metavar="DIR", help="write every figure as a file of its own too, .svg or .png"
    )
    report.add_argument("--json", action="store_true", help="print the numbers of the page as JSON")

    export = commands.add_parser(
        "export",
        help="save a policy that TensorFlow alone can run",
        description="Write the noise-free policy of a run's newest checkpoint as a SavedModel, which needs nothing but "
        "TensorFlow, with policy.json (settings, shapes, versions) and a README.md that shows how to run it.",
    )
    export.add_argument("run", type=path, help="the folder of a training run")
    export.add_argument("--out", required=True, type=path, metavar="DIR", help="the folder to write; made if missing")
    export.add_argument(
        "--batch-size",
        type=_count,
        metavar="B",
        help="environments that are planned for together, always B of them: faster than any number, planned for one by "
        "one, which is the default",
    )
    export.add_argument(
        "--precision",
        default="float32",
        metavar="TYPE",
        help="compute type of matrix products and convolutions: float32 (fast everywhere) or bfloat16 (for processors "
        "and accelerators with units for it; slow on others); default: float32",
    )
    export.add_argument("--overwrite", action="store_true", help="replace an earlier export in DIR")

    install = commands.add_parser(
        "install",
        help="install what pip cannot resolve on this Python: tf-agents, dm-control",
        description="Install TF-Agents or dm_control into this environment with pip, without the requirements that "
        "keep pip from it on Python 3.12 or 3.13 and that nothing here imports.",
    )
    install.add_argument("packages", nargs="+", choices=["tf-agents", "dm-control"], help="what to install")

    configs = commands.add_parser("configs", help="list presets, or print the configuration they make")
    configs.add_argument("presets", nargs="*", metavar="PRESET", help="print what these give together")
    configs.add_argument(
        "--reference", action="store_true", help="print all settings and presets as Markdown (docs/configuration.md)"
    )
    return top


def _number(text: str) -> int:
    """An argument that is a whole number, which the command may bound further."""
    import argparse
    import re

    if not re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number of at most 18 digits")
    return int(text)


def _count(text: str) -> int:
    """An argument that counts something."""
    number = _number(text)
    if abs(number) >= 2**31:
        import argparse

        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number below 2**31")
    return number

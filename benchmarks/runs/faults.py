"""What breaks a run, and what does not: kills, lost workers, signals, full disks, damaged files, odd command lines.

    python -m benchmarks.runs.faults --quick            # some minutes
    python -m benchmarks.runs.faults                    # half an hour
    python -m benchmarks.runs.faults --only disks files

A tiny run is trained undisturbed; then the same run is disturbed at random moments and must become the same, row for
row, with no finished episode lost, and every command must end with a documented exit code and without a traceback.
Full disks need the right to mount (root, on Linux). Writes results/benchmarks/faults.json, prints a table, and ends
with exit code 1 where something was not kept.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bayes_planet.runs.starts import cores, cpuinfo, versions
from benchmarks.runs import fault_runs as runs

DONE, BAD_INPUT, NOT_WRITTEN, STOPPED = 0, 2, 74, 75


class Try(NamedTuple):
    """One fault: what was done, why it was not survived ('' where it was), and figures to add up."""

    name: str
    failure: str
    figures: dict[str, int] = {}


class Setting(NamedTuple):
    """An undisturbed run and how long it takes; a folder to work in; how much to do; the dice."""

    undisturbed: Path
    seconds: float
    folder: Path
    quick: bool
    dice: random.Random

    def moment(self) -> float:
        """Seconds after the start, anywhere in the run."""
        return self.dice.uniform(0.0, self.seconds)


def kills(setting: Setting) -> Iterator[Try]:
    """kill -9 at random moments, again and again until the run is done; its environment processes end with it."""
    for number in range(2 if setting.quick else 8):
        folder = setting.folder / f"killed-{number}"
        there: dict[str, bytes] = {}
        lost, killed = 0, 0
        for _ in range(3 if setting.quick else 6):
            code, _, _ = runs.end_after(runs.train_command(folder), setting.moment(), signal.SIGKILL)
            killed += code == -signal.SIGKILL
            now = runs.episodes(folder)
            lost += sum(now.get(name) != data for name, data in there.items())
            there = now
        code, _, stderr = runs.finish(runs.train_command(folder))
        now = runs.episodes(folder)
        lost += sum(now.get(name) != data for name, data in there.items())
        failure = runs.clean(code, stderr, [DONE]) or runs.difference(folder, setting.undisturbed)
        figures = {"kills": killed, "episodes": len(now), "episodes lost": lost, "rows": len(runs.rows(folder))}
        yield Try(f"killed {killed} times", failure or ("an episode was lost" if lost else ""), figures)


def workers(setting: Setting) -> Iterator[Try]:
    """Environment processes killed or stopped at random moments, also while they start."""
    for number in range(1 if setting.quick else 4):
        folder = setting.folder / f"workers-{number}"
        process = runs.start(runs.train_command(folder), stdout=None, stderr=None)
        hit = {"killed": 0, "stopped": 0}
        while process.poll() is None:
            time.sleep(setting.dice.uniform(0.5, setting.seconds / 4))
            for pid in runs.worker_pids(process.pid)[:1]:
                kind = setting.dice.choice(("killed", "killed", "stopped")) if hit["killed"] else "killed"
                os.kill(pid, signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
                hit[kind] += 1
                if sum(hit.values()) >= 4:
                    process.wait()
        failure = "" if process.returncode == DONE else f"exit code {process.returncode}"
        failure = failure or runs.difference(folder, setting.undisturbed)
        yield Try(f"{hit['killed']} killed, {hit['stopped']} stopped", failure, hit)


def signals(setting: Setting) -> Iterator[Try]:
    """Signals to `train`, which saves; Ctrl-C to every other command, which leaves no temporary files."""
    for number in runs.STOPS[: 1 if setting.quick else 3]:
        folder = setting.folder / f"signalled-{number.name}"
        moment = setting.seconds * setting.dice.uniform(0.5, 0.9)
        code, _, stderr = runs.end_after(runs.train_command(folder), moment, number)
        failure = runs.clean(code, stderr, [STOPPED, DONE])
        code, _, stderr = runs.finish(runs.train_command(folder))
        # A stop among updates writes the mean of those it has come to, and the next start that of the others.
        same = runs.difference(folder, setting.undisturbed, updates=False)
        failure = failure or runs.clean(code, stderr, [DONE]) or same
        yield Try(f"train, {number.name} after {moment:.1f} s", failure, {"signals": 1})
    run, place = setting.undisturbed, setting.folder
    commands: dict[str, tuple[object, ...]] = {
        "evaluate": ("evaluate", run, "--episodes", 50),
        "report": ("report", run, "--out", place / "report.html"),
        "export": ("export", run, "--out", place / "exported", "--overwrite"),
        "analyse": ("analyse", run, "--episodes", 2),
        "configs": ("configs", "planet"),
        "train": ("train", "--config", "bayes_planet", "debug", "--logdir", place / "begun", *runs.SETTINGS),
    }
    for turn in range(1 if setting.quick else 6):
        for name, arguments in commands.items():
            moment = setting.dice.uniform(0.1, 1.0 if turn % 2 or name == "configs" else setting.seconds / 2)
            with tempfile.TemporaryDirectory() as temporary:
                environment = {**os.environ, "TMPDIR": temporary}
                code, _, stderr = runs.end_after(runs.command(*arguments), moment, signal.SIGINT, env=environment)
                failure = runs.clean(code, stderr, [DONE, *runs.signalled(signal.SIGINT), STOPPED])
                litter = sorted(path.name for path in Path(temporary).iterdir())
            if len(stderr.strip().splitlines()) > 1:
                failure = failure or f"more than a line: {stderr[-300:]}"
            failure = failure or (f"left in the temporary folder: {litter}" if litter else "")
            yield Try(f"{name}, SIGINT after {moment:.2f} s", failure, {"signals": 1})


def disks(setting: Setting) -> Iterator[Try]:
    """Disks that are full from some moment on, or read-only; and standard output that cannot be written."""
    size = sum(path.stat().st_size for path in setting.undisturbed.rglob("*") if path.is_file()) // 1024
    for number in range(2 if setting.quick else 12):
        kilobytes = int(size * setting.dice.uniform(0.05, 0.95))
        name = f"a disk of {kilobytes} KB, the run has {size} KB"
        try:
            with runs.small_disk(setting.folder / f"disk-{number}", kilobytes) as disk:
                folder = disk / "run"
                code, _, stderr = runs.finish(runs.train_command(folder))
                failure = runs.clean(code, stderr, [BAD_INPUT, NOT_WRITTEN])
                before = runs.episodes(folder)
                runs.remount(disk, "size=256m")
                again, _, stderr = runs.finish(runs.train_command(folder))
                failure = failure or runs.clean(again, stderr, [DONE]) or runs.difference(folder, setting.undisturbed)
                lost = sum(runs.episodes(folder).get(key) != data for key, data in before.items())
                yield Try(f"{name}: exit code {code}", failure, {"full disks": 1, "episodes lost": lost})
                if number == 0:
                    shutil.rmtree(folder)
                    runs.remount(disk, "ro")
                    code, _, stderr = runs.finish(runs.train_command(folder))
                    yield Try("a read-only disk", runs.clean(code, stderr, [BAD_INPUT]), {"read-only disks": 1})
        except PermissionError as error:
            print(f"left out, as no disk can be mounted: {error}", file=sys.stderr)
            break
    run = setting.undisturbed
    for arguments in (["train"], ["evaluate", run, "--episodes", 1], ["configs", "planet"]):
        for redirection in ("> /dev/full", "<&- >&- 2>&-", "| head -1 > /dev/null", ">&- 2>&-")[
            : 2 if setting.quick else 4
        ]:
            folder = setting.folder / f"output-{setting.dice.getrandbits(40)}"
            train = arguments[0] == "train"
            words = runs.train_command(folder) if train else runs.command(*arguments)
            shell = f'"$@" {redirection}; exit ${{PIPESTATUS[0]}}'
            code, _, stderr = runs.finish(["bash", "-c", shell, "bash", *words])
            failure = runs.clean(code, stderr, [DONE] if train else [DONE, NOT_WRITTEN, 141])
            if train:
                failure = failure or runs.difference(folder, setting.undisturbed)
                failure = failure or ("text in .lock" if (folder / ".lock").stat().st_size else "")
            yield Try(f"{arguments[0]} {redirection}", failure, {"outputs": 1})


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "null": lambda data: b"null\n",
    "a list": lambda data: b"[1, 2]\n",
    "brackets": lambda data: b"[" * 200_000,
    "random bytes": lambda data: random.Random(len(data)).randbytes(max(1, len(data))),
}


def files(setting: Setting) -> Iterator[Try]:
    """Files of a run, damaged: reports and further training end in words, or go on without what is damaged."""
    names = sorted(
        str(path.relative_to(setting.undisturbed)) for path in setting.undisturbed.rglob("*") if path.is_file()
    )
    names = [name for name in names if not name.startswith(("logs/", "videos/", ".lock"))]
    cases = [(name, damage) for name in names for damage in DAMAGES]
    for name, damage in setting.dice.sample(cases, min(len(cases), 8 if setting.quick else 80)):
        with tempfile.TemporaryDirectory(dir=setting.folder) as copy:
            folder = Path(copy) / "run"
            shutil.copytree(setting.undisturbed, folder)
            (folder / name).write_bytes(DAMAGES[damage]((folder / name).read_bytes()))
            chosen = setting.dice.choice(["report", "report", "train"])
            words = runs.command("report", folder) if chosen == "report" else runs.train_command(folder)
            code, _, stderr = runs.finish(words)
            yield Try(f"{chosen}, {name}: {damage}", runs.clean(code, stderr, [DONE, BAD_INPUT]), {"files": 1})


LINES: tuple[tuple[str, ...], ...] = (
    ("train",),
    ("train", "--logdir", ""),
    ("train", "--logdir", "/dev/null"),
    ("train", "--logdir", "{folder}", "seed=-1"),
    ("train", "--logdir", "{folder}", "seed=" + "9" * 5000),
    ("train", "--logdir", "{folder}", "train.episodes=nan"),
    ("train", "--logdir", "{folder}", "train.episode=3"),
    ("train", "--logdir", "{folder}", "env.name=dm_control/no-such"),
    ("train", "--logdir", "{folder}", "env.name=module_that_is_not_there:Env"),
    ("train", "--logdir", "{folder}", "--config", "no_such_preset"),
    ("train", "--logdir", "{folder}", "--config", "/etc/passwd"),
    ("train", "--logdir", "{folder}", "--device", "abacus", "env.observations=state"),
    ("evaluate", "/no/such/run"),
    ("evaluate", "{run}", "--episodes", "0"),
    ("evaluate", "{run}", "--video", "a.txt"),
    ("evaluate", "{run}", "--seed", "-1"),
    ("evaluate", "{run}", "--planner", "horizon=x"),
    ("analyse", "{run}", "--reference", "/no/such/run"),
    ("report", "/no/such/run"),
    ("report", "{run}", "--detailed", "-1"),
    ("export", "{run}", "--out", "/dev/null/x"),
    ("configs", "no_such_preset"),
    ("no_such_command",),
    ("train", "--logdir", "{folder}", "\udcff=\udcfe"),
)


def lines(setting: Setting) -> Iterator[Try]:
    """Command lines that cannot be meant: refused with exit code 2, and the run that is there stays as it is."""
    before = runs.rows(setting.undisturbed)
    for number, line in enumerate(LINES[:: 2 if setting.quick else 1]):
        places = {"{folder}": str(setting.folder / f"line-{number}"), "{run}": str(setting.undisturbed)}
        code, _, stderr = runs.finish(runs.command(*(places.get(word, word) for word in line)))
        failure = runs.clean(code, stderr, [BAD_INPUT])
        shown = " ".join(word if len(word) < 40 else word[:30] + "..." for word in line)
        yield Try(shown.encode(errors="backslashreplace").decode(), failure, {"command lines": 1})
    yield Try("the run is as it was", "" if runs.rows(setting.undisturbed) == before else "its rows have changed")


GROUPS = {"kills": kills, "workers": workers, "signals": signals, "disks": disks, "files": files, "lines": lines}


def summary(tries: Sequence[Try], seconds: float) -> dict[str, Any]:
    """The counts of a group, and what was not kept."""
    figures: dict[str, int] = {}
    for each in tries:
        for key, value in each.figures.items():
            figures[key] = figures.get(key, 0) + value
    broken = [{"name": each.name, "failure": each.failure} for each in tries if each.failure]
    return {
        "tries": len(tries),
        "kept": len(tries) - len(broken),
        **figures,
        "seconds": round(seconds),
        "broken": broken,
    }


def write(path: Path, kind: str, found: dict[str, Any], seed: int) -> None:
    """Adds the groups to what the file has of this kind; others stay."""
    path.parent.mkdir(parents=True, exist_ok=True)
    present = json.loads(path.read_text()) if path.exists() else {}
    machine = {"cpu": cpuinfo().get("model name"), "cores": cores(), "versions": versions()}
    present[kind] = {**present.get(kind, {}), **found, "seed": seed, "machine": machine}
    path.write_text(json.dumps(present, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="some minutes: a few tries of each kind")
    parser.add_argument("--only", nargs="+", choices=list(GROUPS), default=list(GROUPS), help="these kinds alone")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments, sizes and files")
    parser.add_argument("--out", type=Path, default=Path("results/benchmarks/faults.json"))
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # or disks stay mounted
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="faults-") as temporary:
        undisturbed, start = Path(temporary) / "undisturbed", time.monotonic()
        code, _, stderr = runs.finish(runs.train_command(undisturbed))
        if code:
            raise SystemExit(f"The undisturbed run failed: {stderr}")
        seconds = time.monotonic() - start
        print(f"undisturbed: {seconds:.0f} s, {len(runs.rows(undisturbed))} rows", flush=True)
        for name in options.only:
            setting = Setting(undisturbed, seconds, Path(temporary), options.quick, random.Random(options.seed))
            start, tries = time.monotonic(), []
            for each in GROUPS[name](setting):
                tries.append(each)
                print(f"{name}: {each.name}: {each.failure or 'kept'}", flush=True)
            found[name] = summary(tries, time.monotonic() - start)
            write(options.out, "quick" if options.quick else "full", found, options.seed)  # of an hour, what is done
    for name, group in found.items():
        print(f"{name:8} {group['kept']} of {group['tries']} kept in {group['seconds']} s")
    return int(any(group["broken"] for group in found.values()))


if __name__ == "__main__":
    sys.exit(main())

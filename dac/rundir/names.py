"""The run directory: what a run leaves behind, written as it goes.

config.toml           the complete configuration; `dac train --config` runs it again
metrics.csv           one row per member and evaluation
summary.json          per member: seed, hyperparameters, steps, updates, returns, visited cells; speed; versions
policy.safetensors    the policies of all members, stacked: those of the last checkpoint, at the end the final ones
checkpoint/           what `dac resume` continues from
error.txt             the traceback of an environment that raised an exception, with which the run ended
progress.json         how far a run is, written about once a second while it goes on
attempts.jsonl        where and from which step on a study has trained it, a line for each beginning and each end
visits.npz            visit counts at chosen steps and the step of each cell's first visit, where the task has a grid

Callbacks and loggers add files of their own:

best.safetensors      each member's policy at its best evaluation, with best.json (`SaveBest`)
policies/             policies of chosen steps (`SavePolicies`)
evaluations-TASK.csv  evaluations on another task (`EvaluateOn`)
tensorboard/ wandb/   what those loggers write, with wandb.json and trackio.json, which name the run they log to
"""

import re

CONFIG = "config.toml"
METRICS = "metrics.csv"
SUMMARY = "summary.json"
POLICY = "policy.safetensors"
TRACEBACK = "error.txt"
VISITS = "visits.npz"
PROGRESS = "progress.json"
ATTEMPTS = "attempts.jsonl"
BEST_POLICY = "best.safetensors"
POLICIES = "policies"
SAVED = (CONFIG, METRICS, SUMMARY, POLICY, VISITS)
"""The files that are a run, beside its checkpoints."""
ASIDE = (PROGRESS, ATTEMPTS, TRACEBACK, BEST_POLICY, "best.json", "wandb.json", "trackio.json")
"""Files that say something of a run in the same directory, and nothing of another one that takes its place."""


def evaluations_file(task: str) -> str:
    """The file with the evaluations on another task."""
    return f"evaluations-{re.sub(r'[^A-Za-z0-9._-]', '-', task)}.csv"

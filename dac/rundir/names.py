"""The run directory: what a run leaves behind, written as it goes.

config.toml           the complete configuration; `dac train --config` runs it again
metrics.csv           one row per member and evaluation
summary.json          per member: seed, hyperparameters, steps, updates, returns, visited cells; speed; versions
policy.safetensors    the policies of all members, stacked: those of the last checkpoint, at the end the final ones
checkpoint/           what `dac resume` continues from
error.txt             the traceback of an environment that raised an exception, with which the run ended
visits.npz            visit counts at chosen steps and the step of each cell's first visit, where the task has a grid
"""

CONFIG = "config.toml"
METRICS = "metrics.csv"
SUMMARY = "summary.json"
POLICY = "policy.safetensors"
TRACEBACK = "error.txt"
VISITS = "visits.npz"

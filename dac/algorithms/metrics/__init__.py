"""Every metric that goes with any off-policy algorithm, by the name it has in `--metrics`.

A metric is a function of the policy, a batch and a key. It is computed at evaluations only, on fresh batches of the
replay buffer, and costs nothing in training.
"""

from __future__ import annotations

from dac.algorithms.metrics.base import Metric as Metric
from dac.algorithms.metrics.base import WithMetrics as WithMetrics
from dac.algorithms.metrics.exploration import exploration
from dac.algorithms.metrics.reward_rate import reward_rate

METRICS: dict[str, Metric] = {
    "reward_rate": reward_rate,
    "exploration": exploration,
}
"""Every metric by its name in `--metrics`."""

"""Max-min entropy (Han & Sung, NeurIPS 2021): a wide policy that seeks the states where it is still narrow.

The policy maximises its entropy, as in SAC, but the values pay for states of *low* entropy: there the policy was not
trained yet. This is SAC with a negative weight of the entropy in the value target and nothing else; the equation is
`entropy.value_reward`. The authors' alpha_pi is `beta` here, and their alpha_Q is `-value_entropy`.
"""

from __future__ import annotations

from dac.algorithms.base import number
from dac.algorithms.sac import SAC


class MME(SAC):
    """Max-min entropy: maximise the policy's entropy, and visit the states where it is low."""

    value_entropy: float = number(-0.5)
    """Weight of the policy's entropy in the value target: minus the paper's alpha_Q."""

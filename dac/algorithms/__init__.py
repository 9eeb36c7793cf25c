"""Every algorithm, by the name it has on the command line."""

from dac.algorithms.base import AbstractAlgorithm as AbstractAlgorithm
from dac.algorithms.dac import DAC as DAC
from dac.algorithms.sac import SAC as SAC

ALGORITHMS: dict[str, type[AbstractAlgorithm]] = {"dac": DAC, "sac": SAC}

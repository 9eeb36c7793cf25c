"""A model class for every algorithm of the command line."""

from __future__ import annotations

from dac.api.model import Model


class DAC(Model):
    """Diversity Actor-Critic (Han & Sung, 2021): explores away from what the replay buffer holds."""

    algorithm = "dac"


class SAC(Model):
    """Soft Actor-Critic with a value network (Haarnoja et al., 2018)."""

    algorithm = "sac"


class SACDiv(Model):
    """SAC-Div (Hong et al., 2018): keeps the policy away from the replay buffer by a divergence."""

    algorithm = "sac-div"


class RND(Model):
    """An actor-critic with Random Network Distillation (Burda et al., 2019)."""

    algorithm = "rnd"


class MaxEntState(Model):
    """An actor-critic with a bonus for rare states (Hazan et al., 2019)."""

    algorithm = "maxent-state"


class TD3(Model):
    """Twin Delayed DDPG (Fujimoto et al., 2018)."""

    algorithm = "td3"


class SQL(Model):
    """Soft Q-Learning (Haarnoja et al., 2017)."""

    algorithm = "sql"


class PPO(Model):
    """Proximal Policy Optimisation (Schulman et al., 2017)."""

    algorithm = "ppo"


class ACKTR(Model):
    """Actor-critic with Kronecker-factored natural gradients (Wu et al., 2017)."""

    algorithm = "acktr"


class MME(Model):
    """Max-min entropy (Han & Sung, NeurIPS 2021): seeks the states where the policy's entropy is low."""

    algorithm = "mme"


class DEMME(Model):
    """Disentangled max-min entropy (Han & Sung, NeurIPS 2021), for delayed rewards."""

    algorithm = "de-mme"

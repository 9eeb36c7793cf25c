"""The tasks of the DeepMind Control suite (Tassa et al. 2018, Tunyasuvunakool et al. 2020) on `mujoco.batch`.

Models are read from the installed package `dm_control`; its Python is not imported, so it need not know the version of
MuJoCo that is installed. Observations, rewards and terminations are written here over rows of a batch, one file per
domain, and are dm_control's own, step by step (tests/peers/test_dmc.py).

    names.py        every task, with its sizes, as plain text
    files.py        the models of the installed package
    tolerance.py    the function from which most rewards are made
    domain.py       what a domain is, and how an episode starts
    cartpole.py ... the domains
    envs.py         many simulations of a task, on threads
    single.py       one of them as a Gymnasium environment
"""

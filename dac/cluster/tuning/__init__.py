"""Tuning: Optuna proposes settings, populations try many at once, and successive halving keeps the best.

space.py      what is tuned, and in which ranges
ladder.py     how many populations there are on each rung, and what they cost
storage.py    where Optuna keeps its trials: SQLite, PostgreSQL, a journal
folder.py     what the folder of a study holds: its settings and its populations, which are run directories
sampling.py   which settings come next
tuner.py      the loop: tell what is known, choose a population, train it to its rung
results.py    the best settings, the table of trials, the pictures
"""

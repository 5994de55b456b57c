"""Searching the space of a kernel's schedules, guided by a model that learns from what was measured.

A space and what it means to measure its points are handed in; the same search serves kernels of the
processor and tiles of the accelerator.

Reading order: features, trees, smooth, model, proposing, searching, baselines, records,
past, measuring.
"""

from jitla.tuner.baselines import annealing, genetic, random_search
from jitla.tuner.features import facts, features
from jitla.tuner.measuring import ROUNDS, Stopwatch, Timing
from jitla.tuner.model import History, Model, accuracy
from jitla.tuner.past import PLACE, built_in, remembered
from jitla.tuner.records import VERSION, Record, Records, parse
from jitla.tuner.searching import Found, Settings, search
from jitla.tuner.smooth import Smooth
from jitla.tuner.trees import Learner, Loss, Trees, gradients

__all__ = [
    "Found", "History", "Learner", "Loss", "Model", "PLACE", "ROUNDS", "Record", "Records", "Settings",
    "Smooth", "Stopwatch", "Timing", "Trees", "VERSION", "accuracy", "annealing", "built_in", "facts",
    "features", "genetic", "gradients", "parse", "random_search", "remembered", "search",
]

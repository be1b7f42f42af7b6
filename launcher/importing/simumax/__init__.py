"""Imports the three input files of SimuMax (strategy, model, system): a job and its hardware."""

"""Sampling, learning and verifying in Ray actors, on one machine or many."""

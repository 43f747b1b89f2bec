"""Estimate memory, work and time of a run before it starts, from settings and model shapes alone (no torch, no weights)."""

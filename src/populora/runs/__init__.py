"""Runs: what a run leaves on disk, and what the user sees while it goes on.

The run directory and its lock (`directory`), checkpoints, the record of a step and its Parquet tables, metrics, loggers, the live display
and the closing summary. It imports engine and the rooms below. Start with `step_record`, then `metrics`.
"""

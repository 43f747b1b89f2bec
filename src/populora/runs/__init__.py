"""Runs: the files and the displays of a run.

The run directory and its lock (`directory`), checkpoints, the record of a step and its Parquet tables, metrics, loggers, the live display
and the closing summary. It imports domains and the rooms below. Start with `step_record`, then `metrics`.
"""

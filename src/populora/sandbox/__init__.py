"""Untrusted programs and literals are run and read here, in jailed processes, and nowhere else."""

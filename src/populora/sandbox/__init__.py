"""Sandbox: runs programs that a model wrote, in jailed processes.

A pool of workers (`pool`) keeps a prepared interpreter (`zygote`) that forks one child a program, or one for a few contained programs
(`child`); kernel features confine it (`jail`, `seccomp`, `layers`). Model text is evaluated here and in no other room. It imports
only core; what children load is standard library only. Start with `pool`, then docs/verifier.md for the threat model.
"""

"""Cli: one module a command of `populora`; `main` finds it. It may import every other room. Start with `main`, then `train`."""

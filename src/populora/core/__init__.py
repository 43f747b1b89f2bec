"""Core: the vocabulary of all other rooms.

The data types (`types`), settings (`config`, read from presets, files and flags), errors, named random streams
(`rng`), and files that survive a kill (`files`). It imports no other room and no torch. Start with `types`, then `config`.
"""

"""Many processes and machines: who learns what, and the actors that do it."""

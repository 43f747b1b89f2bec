"""Graders: each extracts the answers of a completion in its modes, and decides them in the sandbox. `populora.evals.grading` runs them."""

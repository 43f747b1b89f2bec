"""Report: every figure and table of the paper, in one HTML file.

`figures` has one module a figure, `page` puts them together with an explorer of problems and answers, `server` follows a run that goes on.
It imports evals and the rooms below. Start with `page`.
"""

"""Memory, work and time of a run before it starts: arithmetic on settings and shapes, without torch and without weights.

`hardware` what a GPU can do, `shapes` what a base is made of, `placement` which GPU does what, `work` tokens and FLOPs of a step,
`memory` bytes on a GPU by part, `roofline` seconds of a step by phase, `advice` what to change where it does not fit.
"""

"""Training: the method. One self-play step, and the loop around it.

`step` is the paper's five phases on one page; matchmaking, ratings, rewards, advantages and culling are pure functions next to it. `loop`
trains, resumes and checkpoints. It imports runs and the rooms below. Start with `step`.
"""

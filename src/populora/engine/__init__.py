"""Engine: one frozen base model with many adapters.

`model` holds the adapters next to the base and computes mixed batches, `sampling` draws responses (in this process or by vLLM),
`learning` does one optimiser step per adapter, `cluster` runs both as Ray actors, `planning` estimates memory and time. `backend` builds
all of it for a run. It imports domains and the rooms below. Start with `backend`, then `model/bank.py`.
"""

"""Tasks: the three Absolute Zero tasks of any domain: infer the input, the output or the program.

Prompts (`render`), reading of responses (`parsing`), the life of a proposal and of an attempt, the verifier that decides validity and
correctness in the sandbox, and the CVT archive that measures coverage. It imports core, sandbox and domains. Start with `verifier`.
"""

"""Tasks: the three Absolute-Zero tasks code_i, code_o and code_f.

Prompts (`render`), reading of responses (`parsing`), the life of a proposal and of an attempt, the verifier that decides validity and
correctness in the sandbox, and the CVT archive that measures coverage. It imports core and sandbox. Start with `verifier`.
"""

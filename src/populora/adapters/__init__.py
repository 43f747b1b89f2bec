"""Adapters: LoRA adapters as data, without a model.

An `Adapter` is factors, alpha and target modules; `peft_format` reads and writes PEFT folders, `svd` splits products, and `operators`
breeds children by the paper's 17 operators. It imports only core. Start with `adapter`, then `operators`.
"""

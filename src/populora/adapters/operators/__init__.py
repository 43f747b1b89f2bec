"""Weight-space operators (paper, section 3.3 and appendix "Full LoRA Operator Catalog"): adapters in, one child out."""

from populora.adapters.operators.registry import OPERATORS, Operator, available_operators, get_operator

__all__ = ["OPERATORS", "Operator", "available_operators", "get_operator"]

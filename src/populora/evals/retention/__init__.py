"""The operator-retention benchmark (paper, section 4 "LoRA Operator Retention" and its appendix): which children learn on?"""

"""Domains: the executable languages in which problems are set. Python is the first, SQL the second, packages add their own.

A domain is a declaration (`declaration.Domain`) and a runner, a module that the sandbox imports (`populora.sandbox.runner`). From these
the three tasks follow: infer an input, the output, or the program. The rest of populora knows a domain only through them. This room
imports core and sandbox. Start with `declaration`, then `python` or `sql`; docs/domains.md builds one step by step.
"""

from populora.domains.declaration import Domain, Metric

__all__ = ["Domain", "Metric"]

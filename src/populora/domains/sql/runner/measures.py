"""The complexity of a statement: four counts, in the order of `populora.domains.sql.MEASURES`."""

from sqlglot import exp

_CLAUSES = (exp.Where, exp.Group, exp.Having, exp.Limit, exp.Distinct, exp.SetOperation, exp.And, exp.Or, exp.Case, exp.Window)


def measure_tree(tree: exp.Expr) -> tuple[int, int, int, int]:
    """Measure a statement, subqueries and common table expressions included.

    - joins: tables that are joined to others, by JOIN or by a comma.
    - nesting: SELECTs around the innermost one. A common table expression counts as inside its statement; the parts of a UNION do not
      nest.
    - clauses: each WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, DISTINCT and set operation, each AND, OR, CASE and window. The ORDER BY
      of a window or an aggregate is part of it. The WHERE of a FILTER counts.
    - columns: different names of tables and of columns. A common table expression is no table. ``*`` is a column, except in count(*).
    """
    nodes = list(tree.walk())
    joins = sum(isinstance(node, exp.Join) for node in nodes)
    orders = sum(isinstance(node, exp.Order) and isinstance(node.parent, exp.Query) for node in nodes)
    clauses = orders + sum(isinstance(node, _CLAUSES) for node in nodes)
    return joins, max(_nesting(node) for node in nodes if isinstance(node, exp.Select)), clauses, _names(nodes)


def _nesting(select: exp.Expr) -> int:
    """Count the SELECTs around one. A set operation is around the subqueries of its clauses, not around its parts."""
    count, inner, outer = 0, select, select.parent
    while outer is not None:
        if isinstance(outer, exp.Select) or (isinstance(outer, exp.SetOperation) and inner.arg_key not in ("this", "expression")):
            count += 1
        inner, outer = outer, outer.parent
    return count


def _names(nodes: list[exp.Expr]) -> int:
    shared = {node.alias.lower() for node in nodes if isinstance(node, exp.CTE)}
    tables = {node.name.lower() for node in nodes if isinstance(node, exp.Table)}
    columns = {node.name.lower() for node in nodes if isinstance(node, exp.Column)}
    stars = {"*" for node in nodes if isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count)}
    return len(tables - shared) + len(columns | stars)

"""The measures and the reasons of SQL's runner, for the declaration of the domain. Imports nothing, so that the trainer needs no parser."""

MEASURES = (
    ("joins", 0, 4, "Joins: tables joined to others."),
    ("nesting", 0, 4, "Nesting: SELECTs around the innermost."),
    (
        "clauses", 0, 12,
        "Clauses: WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, DISTINCT, set operations, AND, OR, CASE and windows.",
    ),
    ("columns", 1, 12, "Columns: names of tables and columns."),
)  # fmt: skip
"""Name, range and meaning of each measure, in the order of `populora.domains.sql.runner.measures.measure_tree`. Values may lie outside."""

REASONS = (
    "malformed_database", "value_coerced", "malformed_table", "not_one_select", "unparsable_statement", "forbidden_construct",
    "unknown_name", "statement_error", "too_many_steps", "too_many_rows", "unsupported_value", "value_too_long",
)  # fmt: skip
"""The reasons that the runner refuses with."""

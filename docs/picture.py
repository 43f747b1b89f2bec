"""Draw the live table of a finished run as an SVG, from the files of its run directory: the picture in the README.

python docs/picture.py runs/tiny docs/live.svg
"""

import io
import sys
from pathlib import Path

from rich.console import Console

from populora.core.types import Lineage, Matchup, Member, Rating, Role
from populora.runs.directory import read_config
from populora.runs.live import View
from populora.runs.metrics_log import TIMINGS, read_log
from populora.runs.style import describe_child
from populora.runs.tables import read_table

DESCRIPTION = """<title id="title">The live table of a run</title>
<desc id="description">What populora train shows: how far the run is, the last step's measures by task type with their trends, each
teacher's and student's rating, how much of whose problems was solved and was expected to be, and the newest children.</desc>"""


def view(folder: Path) -> View:
    """What the screen showed after the last step."""
    history = read_log(folder)
    last = int(history[-1]["step"])
    seconds = sum(line["seconds/step"] for line in read_log(folder, TIMINGS))
    members = tuple(
        Member(
            row["member"],
            Role(row["role"]),
            row["slot"],
            Rating(row["mu"], row["sigma"]),
            Lineage(row["member"], row["generation"], row["born"]),
        )
        for row in read_table(folder, "ratings", [last]).to_pylist()
    )
    matchups = tuple(
        Matchup(row["teacher"], row["student"], row["expected"], row["mean_rho"], row["outcome"])
        for row in read_table(folder, "matchups", [last]).to_pylist()
    )
    children = [Lineage(**{name: row[name] for name in ("member", "generation", "born", "operator")}, parents=tuple(row["parents"]))
                for row in read_table(folder, "children").to_pylist()]  # fmt: skip
    births = tuple(f"step {child.born}: {describe_child(child)}" for child in reversed(children))[:4]
    return View(
        folder, read_config(folder).steps, tuple(history), elapsed=seconds, left=0.0, members=members, matchups=matchups, births=births
    )


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    console = Console(record=True, width=130, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(view(folder))
    drawn = console.export_svg(title=f"populora train, {folder.name}")
    out.write_text(drawn.replace("<svg ", '<svg role="img" aria-labelledby="title description" ', 1).replace(">", f">\n{DESCRIPTION}", 1))


if __name__ == "__main__":
    main()

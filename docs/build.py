"""Stage the documentation site in build/docs: the pages of docs/, and every file of the repository that they link to.

    python docs/build.py          `make docs` calls it, and then builds site/ from build/docs

A link such as ``../benchmarks/sql/README.md`` works in the repository. On the site the file is ``files/benchmarks/sql/README.md``, so that
every number still leads to its result, without a server of the repository.
"""

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCS, TARGET = ROOT / "docs", ROOT / "build" / "docs"
LINK = re.compile(r"(\]\()(?!\w+:|#|/)([^)#\s]+)(#[^)\s]*)?(\))")
TEXT = {".py": "python", ".toml": "toml", ".json": "json", ".cff": "yaml", "": "text"}
"""Files that become a page of their own, because a browser would offer them for download, by the language of their listing."""


def main() -> None:
    shutil.rmtree(TARGET, ignore_errors=True)
    waiting = [file for file in DOCS.rglob("*") if file.suffix in (".md", ".svg", ".png")]
    waiting.append(ROOT / "CONTRIBUTING.md")
    staged: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file not in staged:
            staged.add(file)
            waiting += stage(file)


def stage(file: Path) -> list[Path]:
    """Copy a file to its place on the site. Returns the files that it links to."""
    place = place_of(file)
    place.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix in TEXT:
        place.write_text(
            f"# {file.relative_to(ROOT)}\n\n```{TEXT[file.suffix]}\n{file.read_text(encoding='utf-8')}\n```\n", encoding="utf-8"
        )
        return []
    if file.suffix != ".md":
        shutil.copyfile(file, place)
        return []
    linked: list[Path] = []

    def rewrite(link: re.Match[str]) -> str:
        target = (file.parent / link[2]).resolve()
        if target.is_dir():
            target = target / "README.md"
        if not target.is_file():
            raise SystemExit(f"{file.relative_to(ROOT)} links to {link[2]}, which is not there")
        linked.append(target)
        return f"{link[1]}{os.path.relpath(place_of(target), place.parent)}{link[3] or ''}{link[4]}"

    place.write_text(LINK.sub(rewrite, file.read_text(encoding="utf-8")), encoding="utf-8")
    return linked


def place_of(file: Path) -> Path:
    """Return where the site has a file of the repository."""
    if file.is_relative_to(DOCS) and file.suffix not in TEXT:
        return TARGET / file.relative_to(DOCS)
    if file == ROOT / "CONTRIBUTING.md":
        return TARGET / "development.md"
    name = file.relative_to(ROOT)
    return TARGET / "files" / (name.with_name(f"{name.name}.md") if file.suffix in TEXT else name)


if __name__ == "__main__":
    main()

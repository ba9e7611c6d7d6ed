"""The documents hold together: links lead somewhere, labels are defined once, archives are cited."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LABEL = r"[BCDEFKQRSUVW][1-9]\d?"
# "- **E12** ..." in a README; " * E12. ..." at the head of a source, in C++ and in Python.
IN_README = re.compile(rf"^- \*\*({LABEL})(?:\*\*|\. )", re.MULTILINE)
IN_SOURCE = re.compile(rf"^(?: \* +| *//+ +| *)({LABEL})\. (?=[A-Z])", re.MULTILINE)
# "DeepSeek-R1" is a name, and "-O2" a flag.
CITED = re.compile(rf"(?<![\w/.-])({LABEL})(?![\w.]*\w)")
NO_LABELS = {"C11", "C64", "F8", "F16", "F32", "F64", "U8", "U16", "U32"}  # a language; types of safetensors
# What installs from an index, where nothing of blink's is yet.
FROM_AN_INDEX = re.compile(r"pip install[^`\n]*blink-serving\b")
SOURCES = ("*.py", "*.h", "*.cuh", "*.cu", "*.c", "*.cpp")
GENERATED = re.compile(r"(^|/)(\w+_)?abi\.py$|_layout\.h$")


def tracked(*patterns: str) -> list[Path]:
    """Files of the repository, those not yet added included."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *patterns]
    done = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("needs git and a checkout")
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def pages() -> list[Path]:
    return tracked("*.md")


def relative_links() -> Iterator[tuple[Path, str]]:
    for page in pages():
        for link in LINK.findall(FENCED.sub("", text_of(page))):
            if not re.match(r"[a-z]+:", link):
                yield page, link


def anchors(page: Path) -> set[str]:
    """The names that headings have in links, as GitHub makes them."""
    titles = re.findall(r"^#+ +(.*)$", FENCED.sub("", text_of(page)), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


def definitions() -> Counter[str]:
    found = Counter(label for page in pages() for label in IN_README.findall(text_of(page)))
    for source in tracked(*SOURCES):
        found.update(IN_SOURCE.findall(text_of(source)))
    return found


def test_relative_links_lead_somewhere() -> None:
    broken = []
    for page, link in relative_links():
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(f"{page.relative_to(ROOT)}: {link}")
    assert not broken


def test_labels_are_defined_once() -> None:
    assert [label for label, times in definitions().items() if times > 1] == []


def test_labels_that_are_cited_are_defined() -> None:
    defined = definitions().keys() | NO_LABELS
    unknown = []
    for path in [*tracked(*SOURCES), *pages()]:
        name = str(path.relative_to(ROOT))
        if not GENERATED.search(name):
            cited = set(CITED.findall(text_of(path)))
            unknown += [f"{name}: {label}" for label in sorted(cited - defined)]
    assert not unknown


def test_archives_of_runs_are_cited() -> None:
    cited = {(page.parent / link).resolve() for page, link in relative_links()}
    archives = tracked(*(f"docs/benchmarks/*.{kind}" for kind in ("json", "jsonl", "png")))
    assert archives
    assert [path.name for path in archives if path.resolve() not in cited] == []


def test_the_kernels_page_says_where_each_label_stands() -> None:
    page = ROOT / "kernels" / "README.md"
    rows = re.findall(r"^\| (E\d+(?:, E\d+)*) \| \[[^]]+\]\(([^)]+)\) \|", text_of(page), re.MULTILINE)
    named = Counter(label for labels, _ in rows for label in labels.split(", "))
    here = set(IN_README.findall(text_of(page)))
    assert {label for label in definitions() if label.startswith("E")} == here | named.keys()
    assert not here & named.keys()
    for labels, link in rows:
        stand = IN_SOURCE.findall(text_of(page.parent / link))
        assert not set(labels.split(", ")) - set(stand), f"{link} does not define {labels}"


def test_install_lines_work_before_a_release() -> None:
    """A line that needs a release says so, or says where the wheels are."""
    wrong = [
        f"{page.relative_to(ROOT)}: {line.strip()}"
        for page in tracked("*.md", "*.py", "*.sh", "*.service", "*Dockerfile", "scripts/*")
        if page.name != "CHANGELOG.md"
        for line in text_of(page).splitlines()
        if FROM_AN_INDEX.search(line) and not re.search(r"released|--find-links|--no-index", line)
    ]
    assert not wrong

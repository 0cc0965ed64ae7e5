"""The pages: the README is short, and every link between files of the repository leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "STYLE.md", *ROOT.glob("docs/**/*.md")]
PAGES += [*ROOT.glob("bench/*.md"), ROOT / "reports" / "README.md", ROOT / "nsa" / "README.md"]


def without_code(text):
    return re.sub(r"(?s)```.*?```|`[^`\n]*`", "", text)


def anchors(text):
    """What the headings of a page are called in links to them."""
    heads = re.findall(r"(?m)^#+ (.+)$", re.sub(r"(?s)```.*?```", "", text))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_the_readme_says_what_it_is_in_700_words_before_its_reference():
    shown = re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text())
    assert len(shown.partition("# Reference")[0].split()) <= 700


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    lost = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if link.startswith(("http", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())):
            lost.append(link)
    assert lost == []

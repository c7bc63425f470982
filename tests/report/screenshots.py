"""The pictures in docs/: `python -m tests.report.screenshots SITE`, from the root, where SITE is a published folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.report.test_browser import CHROMIUM, Visitor

DOCS = Path(__file__).parents[2] / "docs"
PICTURES = {
    "figures-light.png": ("figures.html", "light", {"width": 1120, "height": 760}),
    "corrections-dark.png": ("corrections.html#kind=correction", "dark", {"width": 1120, "height": 1060}),
}


def main() -> None:
    """Take them, each with its first entry opened."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    base = parser.parse_args().site.resolve().as_uri()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for picture, (name, scheme, size) in PICTURES.items():
            context = browser.new_context(viewport=size, color_scheme=scheme)
            page = Visitor(context, base).open(name).page
            page.locator("summary").first.click()
            page.mouse.move(0, 0)
            page.wait_for_timeout(500)
            page.screenshot(path=DOCS / picture)
            context.close()
        browser.close()


if __name__ == "__main__":
    main()

"""The published pages in a real browser: they draw, filter, lead where they say, and ask nobody else for anything."""

from __future__ import annotations

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest

pytestmark = pytest.mark.browser

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
PAGES = ["figures.html", "corrections.html", "sweeps.html", "machines.html"]


def absent() -> str | None:
    """Why there is no browser to test with, None when there is one."""
    try:
        import playwright.sync_api  # noqa: F401  # only whether it is there
    except ImportError:
        return "Playwright is not installed: pip install '.[test]'"
    return None if CHROMIUM else "no Chromium on the path: install the system's package (Debian: chromium)"


@pytest.fixture(scope="session")
def chromium():
    """The system's Chromium. Skips with the reason where there is none; fails where REQUIRE_BROWSER=1 is set."""
    if (why := absent()) is not None:
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(f"REQUIRE_BROWSER=1, but {why}")
        pytest.skip(why)
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


class Visitor:
    """One browser window that keeps what a reader must never see: errors, and requests to anybody else."""

    def __init__(self, context, base: str) -> None:
        self.base = base
        self.page = context.new_page()
        self.troubles: list[str] = []
        self.requests: list[str] = []
        self.page.on(
            "console", lambda message: message.type in ("error", "warning") and self.troubles.append(message.text)
        )
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, name: str) -> Visitor:
        """Go to a page, and wait until it has drawn its content."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.base}/{name}")
        self.page.wait_for_selector("#content > :not(noscript)")
        return self

    def check(self) -> None:
        """No error in the console, no request that leaves the folder."""
        assert self.troubles == []
        outside = [url for url in self.requests if not url.startswith((self.base, "about:", "data:", "blob:"))]
        assert outside == []


@pytest.fixture
def visit(chromium, fleet):
    """A window on the pages of the fleet, opened from files, and checked at the end of the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    visitor = Visitor(context, (fleet.root / "html").as_uri())
    yield visitor
    visitor.check()
    context.close()


@pytest.fixture(scope="session")
def served(fleet):
    """The same folder on a web server, for asv's own pages: a browser may not read their JSON from a file."""
    quiet = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    handler = functools.partial(quiet, directory=fleet.root / "html")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def shown(visitor: Visitor, selector: str) -> list[str]:
    return [node.inner_text() for node in visitor.page.query_selector_all(selector) if node.is_visible()]


@pytest.mark.parametrize("name", PAGES)
def test_page_draws_from_a_file(visit, name):
    """Each page opened from a file draws its content and marks itself in the navigation."""
    visit.open(name)
    assert visit.page.locator(".card").count() > 0
    assert visit.page.locator("nav a[aria-current]").get_attribute("href") == name


def test_every_link_of_the_navigation_leads_to_its_page(visit):
    """Following the navigation from page to page arrives at pages that draw."""
    visit.open("figures.html")
    for name in [*PAGES[1:], PAGES[0]]:
        visit.page.click(f'nav a[href="{name}"]')
        visit.page.wait_for_url(f"**/{name}")
        visit.page.wait_for_selector("#content > :not(noscript)")
        assert visit.page.url.endswith(name)


def test_figure_shows_the_superseded_value_struck_and_its_reason_one_click_away(visit):
    """The old value is struck through beside the new; one click shows factor, reason and both methods."""
    visit.open("figures.html")
    card = visit.page.locator("article", has_text="11.41")
    assert card.locator("s").first.evaluate("node => getComputedStyle(node).textDecorationLine") == "line-through"
    assert "5.6" in card.locator(".value").inner_text()
    card.locator("summary").click()
    card.locator(".records").wait_for()
    text = card.inner_text()
    assert "x0.491" in text
    assert "A copy has no kernel" in text
    assert "sequential copy out of mapped host memory" in text
    assert "closes" in text


def test_figure_with_a_benchmark_draws_its_history(visit):
    """A figure with a series has a small line, and its chart of values once opened."""
    visit.open("figures.html")
    card = visit.page.locator("article", has_text="tower")
    assert card.locator("svg.spark path").count() == 1
    card.locator("summary").click()
    card.locator(".chart svg").wait_for()
    assert "40 values in ms" in card.locator(".chart [role=img]").get_attribute("aria-label")


def test_figures_filter_by_machine_and_words(visit):
    """The filters filter, say how many are left, stand in the address, and the address brings them back."""
    visit.open("figures.html")
    everything = visit.page.locator("article").count()
    visit.page.select_option("select[name=machine]", "tower")
    assert visit.page.locator("article").count() == 1 < everything
    visit.page.select_option("select[name=machine]", "")
    visit.page.fill("input[name=q]", "decoded")
    assert shown(visit, "article h2") == ["Tokens decoded in a second"]
    assert f"1 of {everything}" in visit.page.inner_text("#content")
    address = visit.page.url
    visit.open(address.rpartition("/")[2])
    assert shown(visit, "article h2") == ["Tokens decoded in a second"]
    visit.page.fill("input[name=q]", "nothing like this")
    assert "No figure matches" in visit.page.inner_text("#content")


def test_events_filter_by_kind_machine_and_benchmark(visit):
    """Kinds, machine and benchmark narrow the time line, alone and together, and stand in the address."""
    visit.open("corrections.html")
    total = int(visit.page.inner_text("[aria-live]").split(" of ")[0])
    visit.page.click('button[data-kind="regression"]')
    badges = set(shown(visit, "details.event > summary > .badge"))
    assert badges == {"regression"}
    visit.page.click('button[data-kind="improvement"]')
    assert set(shown(visit, "details.event > summary > .badge")) == {"regression", "improvement"}
    visit.page.select_option("select[name=machine]", "tower")
    assert all("tower" in text for text in shown(visit, "details.event > summary"))
    visit.page.fill("input[name=benchmark]", "TIME_IMPORT")
    left = shown(visit, "details.event > summary")
    assert len(left) == 1 < total
    assert "load.time_import" in left[0]
    assert "kind=regression%2Cimprovement" in visit.page.url
    visit.open(visit.page.url.rpartition("/")[2])
    assert shown(visit, "details.event > summary") == left
    visit.page.fill("input[name=benchmark]", "no such name")
    assert "No event matches" in visit.page.inner_text("#content")


def test_event_shows_its_evidence(visit):
    """An opened event shows the levels, the control arms, the facts before and after, the commits and a chart."""
    visit.open("corrections.html#kind=environment&benchmark=in_place")
    event = visit.page.locator("details.event:not(.group)").first
    event.locator("summary").click()
    event.locator(".chart svg").wait_for()
    text = event.inner_text()
    assert "copies.Bandwidth.track_copy" in text
    assert "moved" in text
    assert "Link width" in text or "link_width" in text or "link width" in text
    assert "Change 31" in text
    address = event.locator("dd a").first.get_attribute("href")
    assert address.startswith("https://example.org/commit/")


def test_link_to_one_event_opens_it(visit, fleet):
    """The address of an event, as in the feed, shows that event open, even when it stands in a group."""
    event = next(one for one in fleet.data("events")["events"] if one["kind"] == "environment")
    visit.open(f"corrections.html#event={event['id']}")
    assert visit.page.locator(f"#event-{event['id']}").get_attribute("open") is not None
    visit.page.wait_for_selector(f"#event-{event['id']} .body p")


def test_markup_in_data_is_shown_as_text(visit):
    """Names and commit messages that hold markup are read by the reader, not by the browser."""
    visit.open("machines.html")
    assert "rack <b>" in shown(visit, "article h2")
    visit.open("corrections.html#kind=improvement&machine=tower")
    event = visit.page.locator("details.event:not(.group)").first
    event.locator("summary").click()
    event.locator(".evidence").wait_for()
    assert "<script>alert(1)</script>" in event.inner_text()


def test_sweep_draws_all_strategies_with_ceilings(visit):
    """The chart has every strategy in its legend, link and cache as labelled lines, and the numbers in a table."""
    visit.open("sweeps.html")
    visit.page.wait_for_selector(".chart svg")
    words = visit.page.locator(".chart svg").first.text_content()
    for word in ("resident", "in place", "staged", "copy", "link, PCIe 5 x8", "L2 60.0 MiB", "packed MiB"):
        assert word in words
    assert visit.page.locator("table tbody tr").count() == 3
    assert "256" in visit.page.inner_text("table")


def test_two_sweeps_are_laid_over_each_other(visit):
    """A second machine over the first: both in the legend, both tables, and the choice in the address."""
    visit.open("sweeps.html")
    other = visit.page.locator("select[name=over] option", has_text="rack").first.get_attribute("value")
    visit.page.select_option("select[name=over]", other)
    visit.page.wait_for_function("document.querySelectorAll('table').length === 2")
    visit.page.wait_for_function("document.querySelector('.chart svg')?.textContent.includes('rack')")
    assert "tower" in visit.page.locator(".chart svg").first.text_content()
    visit.open(visit.page.url.rpartition("/")[2])
    visit.page.wait_for_function("document.querySelectorAll('table').length === 2")


def test_machine_says_how_long_it_has_been_silent(visit):
    """Silence is counted from today, in days, and a machine's links lead to its events and its sweep."""
    visit.open("machines.html")
    assert "has not reported for" in visit.page.inner_text("article")
    visit.page.locator("article", has_text="tower").get_by_text("its sweep").click()
    visit.page.wait_for_selector(".chart svg")
    assert "tower" in visit.page.locator("select[name=sweep] option:checked").inner_text()


def test_pages_work_with_the_keyboard(visit):
    """Tab reaches the skip link first; Enter on it moves to the content; filters and entries answer to keys."""
    visit.open("corrections.html")
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.className") == "skip"
    visit.page.keyboard.press("Enter")
    assert visit.page.evaluate("document.activeElement.id") == "content"
    visit.page.focus('button[data-kind="regression"]')
    visit.page.keyboard.press("Space")
    assert visit.page.get_attribute('button[data-kind="regression"]', "aria-pressed") == "true"
    visit.page.focus("details.event > summary")
    visit.page.keyboard.press("Enter")
    assert visit.page.get_attribute("details.event", "open") is not None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_theme_follows_the_system_and_the_button(chromium, fleet, scheme):
    """A page is light or dark as the system is, and the button changes it for the next page too."""
    context = chromium.new_context(color_scheme=scheme)
    visitor = Visitor(context, (fleet.root / "html").as_uri()).open("sweeps.html")
    visitor.page.wait_for_selector(".chart svg")
    ink = "document.querySelector('.chart svg text').getAttribute('fill')"
    before = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor"), visitor.page.evaluate(ink)
    assert visitor.page.evaluate("document.documentElement.dataset.theme") == scheme
    visitor.page.click("button.theme")
    visitor.page.wait_for_function(f"{ink} !== {before[1]!r}")
    assert visitor.page.evaluate("getComputedStyle(document.body).backgroundColor") != before[0]
    visitor.open("figures.html")
    assert visitor.page.evaluate("document.documentElement.dataset.theme") != scheme
    visitor.check()
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_page_is_accessible(chromium, fleet, name):
    """axe-core finds nothing to object to (WCAG 2.1 A and AA, best practices), in both themes, entries open."""
    from axe_playwright_python.sync_playwright import Axe

    context = chromium.new_context(color_scheme="light")
    visitor = Visitor(context, (fleet.root / "html").as_uri()).open(name)
    for wait in (100, 400):  # a group, then an entry inside it
        visitor.page.evaluate(
            "for (const selector of ['details', 'details.group', '.group details', 'details:not(.group)'])"
            " document.querySelector(selector)?.setAttribute('open', '')"
        )
        visitor.page.wait_for_timeout(wait)
    found = Axe().run(visitor.page)
    assert found.violations_count == 0, found.generate_report()
    visitor.page.click("button.theme")
    visitor.page.wait_for_timeout(100)
    found = Axe().run(visitor.page, options={"runOnly": ["color-contrast"]})
    assert found.violations_count == 0, found.generate_report()
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_page_fits_a_phone(chromium, fleet, name):
    """On a narrow screen nothing is wider than the screen, with every entry opened."""
    context = chromium.new_context(viewport={"width": 360, "height": 740})
    visitor = Visitor(context, (fleet.root / "html").as_uri()).open(name)
    visitor.page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    visitor.page.wait_for_timeout(300)
    assert visitor.page.evaluate("document.documentElement.scrollWidth") <= 360
    visitor.check()
    context.close()


def test_long_units_stay_in_their_card_on_a_phone(chromium, fleet):
    """The two levels of an event wrap where a unit is long, instead of running out of the card."""
    context = chromium.new_context(viewport={"width": 360, "height": 740})
    visitor = Visitor(context, (fleet.root / "html").as_uri()).open("corrections.html")
    past = visitor.page.evaluate(
        """() => [...document.querySelectorAll(".event .levels")].map((levels) => {
          levels.append(" requests answered within a deadline / second");
          return levels.scrollWidth - levels.clientWidth;
        })"""
    )
    assert past
    assert max(past) <= 0
    context.close()


def test_empty_pages_say_what_to_do(chromium, asv_project):
    """With nothing measured yet each page shows its words for that, and a command to start with."""
    html = asv_project(1).publish()
    context = chromium.new_context()
    visitor = Visitor(context, html.as_uri())
    for name in PAGES:
        visitor.open(name)
        assert visitor.page.locator(".empty h2").count() == 1
        assert visitor.page.locator(".empty code").inner_text() != ""
    visitor.check()
    context.close()


def test_missing_data_is_said(chromium, fleet, tmp_path):
    """A page whose data is not in the folder says so instead of staying blank."""
    html = tmp_path / "copy"
    shutil.copytree(fleet.root / "html", html, ignore=shutil.ignore_patterns("graphs"))
    (html / "dashboard" / "data" / "machines.js").unlink()
    context = chromium.new_context()
    page = Visitor(context, html.as_uri()).open("machines.html").page
    assert "could not be drawn" in page.inner_text("#content")
    context.close()


def test_asv_pages_work_offline_and_the_way_back_holds(chromium, fleet, served):
    """asv's grid, list and regressions draw with the libraries of the folder, and its bar leads to our pages."""
    context = chromium.new_context()
    visitor = Visitor(context, served)
    page = visitor.page
    page.goto(f"{served}/index.html#/")
    page.wait_for_selector("#summarygrid-display .benchmark-container")
    page.click("#nav-li-summarylist a")
    page.wait_for_selector("#summarylist-body table")
    page.click("#nav-li-regressions a")
    page.wait_for_selector("#regressions-body")
    page.click('#nav a[href="machines.html"]')
    page.wait_for_selector("article")
    page.click('nav a[href="index.html#/"]')
    page.wait_for_selector("#summarygrid-display .benchmark-container")
    visitor.check()
    context.close()


def test_address_of_the_site_leads_to_the_figures(chromium, served):
    """The site's own address shows the published figures."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(f"{served}/")
    page.wait_for_url("**/figures.html")
    page.wait_for_selector("article")
    context.close()


def test_graph_of_a_figure_is_asv_graph_of_its_series(chromium, served):
    """The link from a figure leads to asv's graph with machine and parameters chosen, and it draws."""
    context = chromium.new_context()
    visitor = Visitor(context, served).open("figures.html")
    visitor.page.locator("article", has_text="tower").get_by_text("graph of its benchmark").click()
    visitor.page.wait_for_selector("#main-graph canvas")
    assert "reads.Seconds.time_read" in visitor.page.inner_text("#title")
    chosen = visitor.page.locator("#graphdisplay-navigation-params .btn.active").all_inner_texts()
    assert any("in_place" in text for text in chosen)
    assert not any("resident" in text for text in chosen)
    visitor.check()
    context.close()


def test_every_relative_link_of_our_pages_exists(visit, fleet):
    """Whatever a page links to inside the site is there."""
    html = fleet.root / "html"
    for name in PAGES:
        visit.open(name)
        visit.page.evaluate("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
        visit.page.wait_for_timeout(50)
        for address in visit.page.eval_on_selector_all(
            "a[href]", "nodes => nodes.map((node) => node.getAttribute('href'))"
        ):
            parts = urlparse(address)
            if not parts.scheme and parts.path:
                assert (Path(html) / unquote(parts.path)).exists(), (name, address)

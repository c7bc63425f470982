"""asv's own page beside ours: its index.html, amended once asv has copied it into the published folder."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

STATIC = Path(__file__).parent / "static"

LINKS = (
    ("figures.html", "Figures"),
    ("corrections.html", "Corrections"),
    ("sweeps.html", "Sweeps"),
    ("machines.html", "Machines"),
)

# What asv's index.html loads from other hosts, by the end of its address, and where the same lies in our folder.
_LOCAL = {
    r"/jquery-[\d.]+\.min\.js": "jquery/jquery.min.js",
    r"/jquery\.flot\.min\.js": "flot/jquery.flot.js",
    r"/jquery\.flot\.(time|selection|categories)\.min\.js": r"flot/jquery.flot.\1.js",
    r"/jquery\.flot\.orderBars\.js": "flot-orderbars/jquery.flot.orderBars.js",
    r"/stupidtable\.min\.js": "stupid-table-plugin/stupidtable.min.js",
    r"/md5\.min\.js": "blueimp-md5/md5.min.js",
    r"/bootstrap\.min\.js": "bootstrap/bootstrap.min.js",
    r"/bootstrap\.min\.css": "bootstrap/bootstrap.min.css",
}
_NEXT = re.compile(r'(<li id="nav-li-regressions">.*?</li>)', re.DOTALL)
_TAG = re.compile(r'<(?:script|link)\b[^>]*?\b(?:src|href)="(https?://[^"]+)"[^>]*>')


def amend(page: str, front: bool) -> tuple[str, list[str]]:
    """asv's index.html with its libraries taken from the folder and links to our pages in its navigation bar.

    front: whether the address without a view leads to our front page. Returns the page and what could not be done,
    in words: another asv may ship another page.
    """
    problems: list[str] = []

    def localise(match: re.Match[str]) -> str:
        tag, url = match[0], match[1]
        for pattern, target in _LOCAL.items():
            if found := re.search(rf"{pattern}$", url):
                tag = tag.replace(url, "dashboard/vendor/" + found.expand(target))
                # The folder is one's own, and a page opened from a file has no origin to check against.
                return re.sub(r'\s(?:integrity|crossorigin|referrerpolicy)="[^"]*"', "", tag)
        problems.append(f"asv's index.html loads {url} from another host; this version of it is not known here")
        return tag

    page = _TAG.sub(localise, page)
    items = "".join(f'\n        <li><a href="{file}">{text}</a></li>' for file, text in LINKS)
    page, count = _NEXT.subn(lambda match: match[1] + items, page, count=1)
    if not count:
        problems.append("asv's index.html has no navigation bar as known here, so no link to our pages could be added")
    if front:
        page = page.replace("<head>", '<head>\n    <script src="dashboard/front.js"></script>', 1)
    return page, problems


def copy_static(html: Path) -> None:
    """Our scripts, styles and the libraries of all pages, into the folder `dashboard` of the published site."""
    shutil.copytree(STATIC, html / "dashboard", dirs_exist_ok=True, copy_function=shutil.copyfile)

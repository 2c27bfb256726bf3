"""Look at the built site as its readers do, in Chromium: `build/axe/bin/python tools/site_check.py build/site`.

On every page: axe-core's rules in the light and the dark theme, one h1, and no sideways scrolling on a phone. Then the
search finds each option and each error first, from a server and from a disk, and the selector of versions lists two.
Prints what is wrong, and exits with status 1 if anything is. A second argument limits the pages: `design/*.html`.
"""

from __future__ import annotations

import functools
import json
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, TimeoutError, sync_playwright

PHONE_PIXELS = 360
DEADLINE_MS = 60_000
# The theme puts the copy button of each block of code into a landmark of its own, without a name.
_LIGHT = {"rules": {"landmark-unique": {"enabled": False}}}
# Both themes differ in colours only.
_DARK = {"runOnly": ["color-contrast"]}
_VERSIONS = ["2.0", "1.0"]
_FIRST_HIT = ".md-search-result__link"


def main(site: Path, pattern: str = "**/*.html") -> int:
    wrong: list[str] = []
    paths = sorted(str(path.relative_to(site)) for path in site.glob(pattern))
    names = [path for path in paths if path.startswith(("errors/", "options/"))]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        for version in _VERSIONS:
            (Path(folder) / version).symlink_to(site)
        listed: list[Any] = [{"version": each, "title": each, "aliases": []} for each in _VERSIONS]
        (Path(folder) / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
        address = served(site)
        for what, found in (
            (f"{len(paths)} pages", pages(browser, address, paths)),
            (f"search for {len(names)} names", search(browser, address, names)),
            ("search from a disk", search(browser, site.as_uri(), names[:1])),
            ("versions", versions(browser, f"{served(Path(folder))}/{_VERSIONS[0]}")),
        ):
            before = len(wrong)
            for line in found:
                wrong.append(line)
                print(f"  {line}", flush=True)
            print(f"{what}: {len(wrong) - before} wrong", flush=True)
    return 1 if wrong else 0


def served(folder: Path) -> str:
    """Serve the folder while this process runs, and return its address."""
    handler = functools.partial(_Quiet, directory=folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def opened(browser: Browser) -> Page:
    page = browser.new_page()
    page.set_default_timeout(DEADLINE_MS)
    return page


def pages(browser: Browser, address: str, paths: list[str]) -> Iterator[str]:
    page, axe = opened(browser), Axe()
    for path in paths:
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(f"{address}/{path}")
        yield from (f"{path}: {line}" for line in violations(axe, page, _LIGHT))
        if (headings := page.locator("h1").count()) != 1:
            yield f"{path}: {headings} h1"
        page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        page.wait_for_selector("body[data-md-color-scheme=slate]")
        # The colours of links change slowly.
        page.wait_for_function("document.getAnimations().length === 0")
        yield from (f"{path}, dark: {line}" for line in violations(axe, page, _DARK))
        page.set_viewport_size({"width": PHONE_PIXELS, "height": 800})
        if (width := page.evaluate("document.documentElement.scrollWidth")) > PHONE_PIXELS:
            yield f"{path}: {width} pixels wide on a phone"
    page.close()


def violations(axe: Axe, page: Page, options: dict[str, Any]) -> Iterator[str]:
    for found in axe.run(page, options=options).response["violations"]:
        nodes = [" ".join(node["html"].split())[:160] for node in found["nodes"]]
        yield f"{found['id']} ({found['impact']}), {len(nodes)} times: {found['help']}: {nodes[0]}"


def search(browser: Browser, address: str, paths: list[str]) -> Iterator[str]:
    page = opened(browser)
    page.goto(f"{address}/index.html")
    for path in paths:
        name = Path(path).stem
        page.fill(".md-search__input", name)
        # The search looks at its input when a key goes up.
        page.press(".md-search__input", "End")
        try:
            page.wait_for_function(
                "([hit, path]) => document.querySelector(hit)?.pathname.endsWith(path)", arg=[_FIRST_HIT, f"/{path}"]
            )
        except TimeoutError:
            first = page.locator(_FIRST_HIT).first
            yield f"{name}: first is {first.get_attribute('href') if first.count() else 'nothing'}"
    page.close()


def versions(browser: Browser, address: str) -> Iterator[str]:
    page = opened(browser)
    page.goto(f"{address}/index.html")
    try:
        page.wait_for_selector(".md-version")
    except TimeoutError:
        yield "no selector"
        return
    shown = page.locator(".md-version__link").all_text_contents()
    current = page.locator(".md-version__current").inner_text()
    if ([each.strip() for each in shown], current.strip()) != (_VERSIONS, _VERSIONS[0]):
        yield f"the selector shows {shown} and {current}"
    page.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), *sys.argv[2:]))

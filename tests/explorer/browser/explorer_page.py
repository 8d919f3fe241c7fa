"""Waiting for a page. Its policy forbids `eval`, which Playwright's own `wait_for_function` needs."""

import time

from playwright.sync_api import Error, Page

SECONDS = 60


def wait(page: Page, condition: str) -> None:
    """Wait until a function of JavaScript, `() => …`, is true in the page."""
    end = time.monotonic() + SECONDS
    while not _holds(page, condition):
        assert time.monotonic() < end, f"not within {SECONDS} seconds: {condition}"
        page.wait_for_timeout(20)


def _holds(page: Page, condition: str) -> bool:
    try:
        return bool(page.evaluate(condition))
    except Error:  # the page is being loaded again
        return False


def settle(page: Page) -> None:
    """Wait until the page shows what it has asked for."""
    wait(page, "() => Boolean(window.stepwell?.ready) && !window.stepwell.busy")

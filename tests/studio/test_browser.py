"""The page in a real browser: upload, paint, restore, stop, click, blind, film, compare, download; and no request to anybody else."""

from __future__ import annotations

import os
import shutil
import urllib.parse
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import linverse as lv
from linverse.data.examples import load_examples

pytest.importorskip("gradio", reason="the extra `studio` (gradio) is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium")
WAIT = 240_000  # milliseconds: a busy machine is slow

from studio_server import Server  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None and "LINVERSE_NEEDS_BROWSER" not in os.environ,  # CI says that it must be there
        reason="chromium is not installed (apt-get install chromium)",
    ),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    assert CHROMIUM is not None, "chromium is not installed, and LINVERSE_NEEDS_BROWSER asks for it"
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def page(browser: Any, server: Server) -> Iterator[Any]:
    """A visitor, whose browser notes every host that it is sent to. One page for all tests: to load it takes longer than they do."""
    context = browser.new_context(viewport={"width": 1280, "height": 1600})
    visitor = context.new_page()
    visitor.set_default_timeout(WAIT)
    visitor.asked = []
    visitor.on("request", lambda request: visitor.asked.append(request.url))
    visitor.goto(server.address)
    visitor.wait_for_selector("#restore")
    yield visitor
    others = {urllib.parse.urlsplit(url).hostname for url in visitor.asked if url.startswith(("http", "ws"))}
    context.close()
    assert others == {"127.0.0.1"}, others


def choose(page: Any, name: str, value: str) -> None:
    """An entry of a dropdown, by the keyboard."""
    box = page.locator(f"#{name} input")
    box.click()
    box.fill(value)
    page.get_by_role("option", name=value).first.click()


def few(page: Any, samples: int, steps: int) -> None:
    if not page.get_by_label("number input for samples").is_visible():
        page.get_by_role("button", name="Numbers").click()
    for label, value in (("number input for samples", samples), ("number input for steps of each", steps)):
        field = page.get_by_label(label)
        field.fill(str(value))
        field.press("Enter")


def stroke(page: Any, below: int = 0) -> None:
    """A stroke with the brush, in the middle of the picture or so many pixels below it."""
    canvas = page.locator("#painted canvas").first
    canvas.wait_for()
    page.wait_for_timeout(1500)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 + below
    page.mouse.move(x - 30, y)
    page.mouse.down()
    page.mouse.move(x + 30, y, steps=8)
    page.mouse.up()
    page.wait_for_timeout(1000)


def test_a_visit(page: Any, tmp_path: Path) -> None:
    digit = tmp_path / "two.png"
    lv.write(digit, load_examples("mnist").batch(torch.tensor([1])))
    page.set_input_files("#upload input[type=file]", str(digit))
    page.get_by_text("28×28, grey, 8 bits").wait_for()
    few(page, 2, 4)

    # paint a stroke, which says that what it covers is missing, and restore that
    stroke(page)
    page.wait_for_function("document.querySelector('#kind input').value.startsWith('painted')")
    page.click("#restore")
    page.locator("#samples img").nth(1).wait_for()
    page.wait_for_selector("#download:not([disabled])")
    assert page.locator("#error-map img").first.get_attribute("alt")
    assert "PSNR" in page.inner_text("#status")

    with page.expect_download() as found:
        page.click("#download")
    with zipfile.ZipFile(found.value.path()) as archive:
        names = archive.namelist()
        missing = lv.read_mask(archive.extract("mask.png", tmp_path))
    assert {"mean.png", "result.json", "repeat.py", "samples/02.png"} <= set(names)
    assert 4 < int((~missing).sum()) < 400  # the stroke, and not all of the picture

    # a pixel, by the mouse and by the keyboard
    page.locator("#mean img").click(position={"x": 60, "y": 60})
    page.locator("#pixel img").wait_for()
    page.get_by_label("row", exact=True).fill("14")
    page.get_by_label("column", exact=True).fill("9")
    page.click("#look")
    page.get_by_text("row 14, column 9").first.wait_for()


def test_the_page_opens_with_an_example(browser: Any, server: Server) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 1600})
    visitor = context.new_page()
    visitor.set_default_timeout(WAIT)
    visitor.goto(server.address)
    visitor.get_by_text("mnist-1.png: 28×28, grey, 8 bits").wait_for()
    assert not visitor.locator("#mean").is_visible()  # no empty frames before there is an answer
    visitor.click("#restore")
    visitor.locator("#mean img").wait_for()
    context.close()


def test_stop_ends_the_samples(page: Any) -> None:
    choose(page, "example", "mnist 1")
    page.get_by_text("mnist-1.png: 28×28").wait_for()
    choose(page, "kind", "noise of a known level")
    few(page, 32, 200)
    page.click("#restore")
    page.wait_for_function("document.querySelectorAll('#samples img').length == 0")  # those of the earlier answer
    page.click("#stop")
    page.get_by_text("stopped:").wait_for()


def test_blind_comes_by_itself_and_again_when_something_is_painted(page: Any) -> None:
    page.get_by_role("tab", name="Blind").click()
    page.locator("#evidence img").wait_for()
    before = page.locator("#evidence img").get_attribute("src")
    assert "90 %" in page.inner_text("#estimate")
    stroke(page, 40)
    page.wait_for_function("before => document.querySelector('#evidence img')?.src != before", arg=before)


def test_a_film_and_a_comparison(page: Any) -> None:
    page.get_by_role("tab", name="Path").click()
    steps = page.get_by_role("tabpanel").get_by_label("number input for steps").locator("visible=true")
    steps.fill("8")
    steps.press("Enter")
    page.click("#film")
    page.locator("#movie img").wait_for()
    page.get_by_role("tab", name="Compare").click()
    choose(page, "method-a", "posterior-mean")
    choose(page, "method-b", "pseudo-inverse")
    page.click("#compare")
    page.locator("#compared img").nth(1).wait_for()


def test_every_picture_has_words_and_the_keyboard_reaches_the_buttons(page: Any) -> None:
    bare = "[...document.querySelectorAll('img')].filter(one => !one.hasAttribute('alt')).map(one => one.outerHTML.slice(0, 99))"
    assert page.evaluate(bare) == []
    page.get_by_role("tab", name="Restore").click()
    reached = set()
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.innerText"))
    assert {"Restore", "Stop"} <= reached


def test_dark_and_light_follow_the_visitor(page: Any) -> None:
    brightness = {}
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(300)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        brightness[scheme] = sum(map(int, colour.strip("rgba()").split(",")[:3]))
    assert brightness["dark"] < 150 < 600 < brightness["light"]


def test_it_fits_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    for tab in ("Restore", "Blind", "Path", "Compare", "Model card"):
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, tab
    page.set_viewport_size({"width": 1280, "height": 1600})


def test_what_is_no_picture_is_refused_in_words(page: Any, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not a picture")
    page.set_input_files("#upload input[type=file]", str(broken))
    page.get_by_text("cannot be read").first.wait_for()
    assert str(tmp_path) not in page.content()

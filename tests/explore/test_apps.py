"""What is served: nothing of marimo but what a running app needs, and every app in a real browser, where it shows what
it should, and answers to the mouse and to keys; and the pages of an atlas. All in one file, so that they share a
server and a browser."""

from __future__ import annotations

import html
import http.client
import re
import shutil
import socket
from collections.abc import Callable
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image

from browser import PATIENCE, Served, Tabs
from measureformer.atlas.atlas import Atlas
from measureformer.atlas.report.pages import chapter_page, overview_page
from measureformer.atlas.report.view import View
from measureformer.atlas.result import Check, Outcome
from measureformer.explore.catalogue import catalogue
from measureformer.figures.roles import PALETTE
from measureformer.lens.model import BOX
from planting import a_result

WAIT = 120_000
"""Milliseconds for an answer."""


# --- without a browser --------------------------------------------------------------------------------------------


def ask(explorer: Served, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    """The answer to a request that carries the cookie, unless another one is given."""
    parts = urlsplit(explorer.address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    headers = {"Cookie": explorer.cookie} | headers
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode("utf-8", "replace") or str(answer.headers)
    connection.close()
    return found


@pytest.mark.parametrize(
    "path",
    [
        "/api/ai/completion",
        "/api/ai/chat",
        "/api/packages/add",
        "/api/packages/list",
        "/api/kernel/install_missing_packages",
        "/api/kernel/run",
        "/api/kernel/save_user_config",
        "/api/files/list_files",
        "/api/export/html",
        "/api/usage",
        "/terminal/ws",
        "/lsp/copilot",
        "/assets/../../server.py",
    ],
)
def test_what_an_app_does_not_need_is_not_there(explorer: Served, path: str) -> None:
    for method in ("GET", "POST"):
        status, text = ask(explorer, f"/gaussian{path}", method)
        assert (status, text) == (404, "not found")


def test_an_app_is_there_with_language_models_off(explorer: Served) -> None:
    status, text = ask(explorer, "/gaussian/")
    assert status == 200
    assert "Gaussian flow" in text
    # what holds, whatever the file of settings says
    overrides = html.unescape(text).rpartition('"ai": ')[2]
    assert overrides.startswith('{"allow_provider_config": false, "enabled": false}')
    assert ask(explorer, "/")[0] == 200
    assert ask(explorer, "/no-such-app/")[0] == 404


def test_pages_of_other_sites_and_other_names_of_this_machine_are_kept_out(explorer: Served) -> None:
    assert ask(explorer, "/gaussian/", Origin="http://example.org")[0] == 404
    assert ask(explorer, "/gaussian/", Host="example.org")[0] == 404
    assert ask(explorer, "/", Host="example.org:2718")[0] == 404
    assert ask(explorer, "/gaussian/", Origin=explorer.address.rstrip("/"))[0] == 200


def test_without_the_token_there_is_nothing_to_see(explorer: Served) -> None:
    # kills: a token that any other user of this machine could do without, or guess a part of
    for cookie in ("", explorer.cookie[:-1], explorer.cookie + "x", f"other={explorer.token}"):
        for path in ("/", "/gaussian/", "/gaussian/ws", "/gaussian/@file/1-a.js"):
            status, text = ask(explorer, path, Cookie=cookie)
            assert (status, text) == (403, "Open the address that the command has printed, with its token.")
    assert ask(explorer, "/?token=guess", Cookie="")[0] == 403
    status, headers = ask(explorer, f"/gaussian/?token={explorer.token}", Cookie="")
    assert status == 303
    assert "location: /gaussian/\n" in headers
    assert f"set-cookie: {explorer.cookie}; Path=/; HttpOnly; SameSite=Strict" in headers
    assert ask(explorer, f"/gaussian/?token={explorer.token}", Cookie="", Host="example.org")[0] == 404


def test_two_hundred_connections_do_not_stop_the_server(explorer: Served) -> None:
    parts = urlsplit(explorer.address)
    with ExitStack() as stack:
        for i in range(200):
            there = stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=60))
            # half of them begin a request and never end it
            there.sendall(b"GET / HTTP/1.1\r\nHost: " if i % 2 else b"")
        assert [ask(explorer, "/")[0] for _ in range(3)] == [200] * 3
    assert ask(explorer, "/gaussian/")[0] == 200


# --- in a browser -------------------------------------------------------------------------------------------------


def drag(page: Any, index: int, x: float, y: float) -> None:
    """Take the point with the mouse, once it stands still, and carry it so many pixels to the right and down."""
    mark = page.locator(f'.point[data-index="{index}"] .mark')
    mark.hover(timeout=WAIT)
    box = mark.bounding_box()
    at = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.down()
    for share in (0.25, 0.5, 0.75, 1.0):
        page.mouse.move(at[0] + share * x, at[1] + share * y)
    page.mouse.up()


def place(page: Any, index: int) -> tuple[float, ...]:
    """Where a point is, as it is read out to those who do not see it."""
    label = page.locator(f'.point[data-index="{index}"]').get_attribute("aria-label")
    return tuple(map(float, re.search(r"\((.*)\)", label)[1].split(",")))


def rows(page: Any) -> dict[str, str]:
    """The tables of numbers, all at one moment."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.mf-table tr')].map(
            (row) => [row.children[0].innerText, row.children[1].innerText]))"""
    )


def until(page: Any, name: str, holds: str, value: str) -> str:
    """Wait until the number of that name `holds` with regard to a value, as JavaScript says it; the number."""
    page.wait_for_function(
        f"""([name, value]) => [...document.querySelectorAll('.mf-table tr')].some(
            (row) => row.children[0].innerText === name && row.children[1].innerText {holds} value)""",
        arg=[name, value],
        timeout=WAIT,
    )
    return rows(page)[name]


def changed(page: Any, name: str, act: Callable[[], Any]) -> str:
    """Do something, and wait until the number of that name is another one; the new number."""
    before = rows(page)[name]
    act()
    return until(page, name, "!==", before)


def test_the_first_page_leads_to_every_app(tabs: Tabs) -> None:
    page = tabs.context.new_page()
    page.goto(tabs.address)
    for app in catalogue():
        link = page.get_by_role("link", name=app.title)
        assert link.get_attribute("href") == f"{app.name}/"
        assert app.about in page.inner_text("body")
    page.close()


def test_particles_follow_the_mouse_and_keys(tabs: Tabs) -> None:
    page = tabs.show("particles")
    assert rows(page)["tokens"] == "12"
    before = place(page, 0)
    changed(page, "energy, first → last", lambda: drag(page, 0, -150, 100))
    after = place(page, 0)
    assert np.hypot(*after) == pytest.approx(1, abs=0.01)  # it has stayed on the circle
    assert np.hypot(*np.subtract(before, after)) > 0.1
    focused = page.locator('.point[data-index="1"]')
    before = place(page, 1)
    changed(page, "energy, first → last", lambda: focused.press("Shift+ArrowLeft"))
    assert place(page, 1) != before
    assert changed(page, "tokens", lambda: focused.press("Delete")) == "11"
    assert changed(page, "tokens", lambda: page.get_by_role("button", name="add a point").click()) == "12"
    box = page.locator(".mf-points svg").bounding_box()
    middle = box["x"] + 0.6 * box["width"], box["y"] + 0.4 * box["height"]
    assert changed(page, "tokens", lambda: page.mouse.dblclick(*middle)) == "13"
    image = page.get_by_alt_text(re.compile("Attention matrix of 13 tokens"))
    assert image.count() == 1


def test_a_gaussian_is_dragged_by_its_mean(tabs: Tabs) -> None:
    page = tabs.show("gaussian")
    assert rows(page)["blow-up"] == "none until then"
    changed(page, "mean there", lambda: drag(page, 0, -120, 60))
    entry = page.locator("table, [role=spinbutton]")
    assert entry.count() > 0
    # rings that look alike are one element of many parts
    drawn = page.locator(".mf-points svg > g[clip-path] path").all()
    assert sum(path.get_attribute("d").count("M") for path in drawn) > 8
    assert len(drawn) < 8


def test_the_gap_between_alice_and_elise_stays(tabs: Tabs) -> None:
    page = tabs.show("counterexample")
    first = float(rows(page)["gap of the answers"])
    slider = page.get_by_role("slider").first
    slider.focus()
    changed(page, "distance of the prompts, W₁", lambda: slider.press("End"))
    assert float(rows(page)["gap of the answers"]) > first
    assert float(rows(page)["gap of the answers"]) == pytest.approx(0.59, abs=0.01)


def test_a_drawn_function_is_compiled(tabs: Tabs) -> None:
    page = tabs.show("compile")
    error = float(rows(page)["mean error"])
    finer = page.get_by_role("slider").first
    finer.focus()
    changed(page, "layers of attention", lambda: finer.press("End"))
    assert float(rows(page)["mean error"]) < error
    before = place(page, 4)
    changed(page, "mean error", lambda: drag(page, 4, 40, -60))
    after = place(page, 4)
    assert after[0] == before[0]  # up and down only
    assert after[1] > before[1] + 0.1


def test_a_drawn_digit_is_recalled(tabs: Tabs) -> None:
    page = tabs.show("memory")
    assert rows(page)["answer"] == "2"
    box = page.locator(".mf-points svg").bounding_box()
    x = box["x"] + 0.5 * box["width"]
    page.get_by_role("button", name="clear").click()

    def stroke() -> None:
        page.mouse.move(x, box["y"] + 0.15 * box["height"])
        page.mouse.down()
        for share in np.linspace(0.15, 0.8, 8):
            page.mouse.move(x, box["y"] + share * box["height"])
        page.mouse.up()

    assert page.locator(".point").count() == 0
    stroke()
    assert page.locator(".point").count() > 20
    until(page, "answer", "===", "1")


def test_tokens_that_cannot_be_separated_are_said_to_be(tabs: Tabs) -> None:
    page = tabs.show("svm")
    changed(page, "its margin", lambda: drag(page, 0, 60, -20))
    # the best token of the first example goes behind the two others
    drag(page, 0, -280, 60)
    page.wait_for_selector(".mf-refusal", timeout=WAIT)
    assert "Drag a ringed token outwards." in page.inner_text(".mf-refusal")
    drag(page, 0, 250, -60)
    page.wait_for_selector(".mf-table", timeout=WAIT)


def test_examples_are_learned_in_context(tabs: Tabs) -> None:
    page = tabs.show("incontext")
    line = changed(page, "least squares", lambda: drag(page, 5, 0, -80))
    assert "error" in line
    assert rows(page)["linear attention"] != line


def test_the_lens_opens_a_folder_or_says_why_not(tabs: Tabs, tmp_path: Path) -> None:
    page = tabs.show("lens")
    page.locator(".mf-plot").nth(1).wait_for(timeout=PATIENCE)  # of the model in the package
    folder, text = page.get_by_role("textbox").first, page.get_by_role("textbox").last
    folder.fill("no/such/folder")
    folder.press("Tab")
    page.wait_for_selector(".mf-refusal", timeout=WAIT)
    # the same model elsewhere, without its tokenizer: texts are then numbers
    for name in ("config.json", "model.safetensors"):
        shutil.copy(BOX / name, tmp_path / name)
    numbers = 5 * ["3", "1", "4", "1", "5", "9", "2", "6"]
    text.fill(" ".join(numbers))
    text.press("Tab")
    folder.fill(str(tmp_path))
    folder.press("Tab")
    until(page, "tokens", "===", " · ".join(numbers))
    page.locator(".mf-plot").nth(1).wait_for(timeout=WAIT)
    assert page.locator(".mf-points path[stroke-linecap]").count() == 1  # the cloud
    assert page.locator(".mf-points .word").all_text_contents() == numbers


@pytest.mark.parametrize("name", ["particles", "gaussian", "compile", "memory", "svm", "incontext"])
def test_points_are_drawn_in_the_colours_of_the_atlas(tabs: Tabs, name: str) -> None:
    shot = tabs.show(name).locator(".mf-points svg").screenshot()
    pixels = np.asarray(Image.open(BytesIO(shot)).convert("RGB")).reshape(-1, 3)
    color = [int(PALETTE[0][i : i + 2], 16) for i in (1, 3, 5)]
    assert (np.abs(pixels - color).max(axis=1) < 8).sum() > 100
    assert (pixels.min(axis=1) > 240).mean() > 0.5


# texts with less contrast than 4.5 to what is painted behind them: in a drawing, that is the last shape below them
_FAINT = """() => {
    const parts = (color) => color.match(/[\\d.]+/g).map(Number);
    const luminance = (color) => parts(color).slice(0, 3).map((part) => part / 255)
        .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, i) => sum + [0.2126, 0.7152, 0.0722][i] * part, 0);
    const under = (text) => {
        const box = text.getBoundingClientRect();
        const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
        return [...text.ownerSVGElement.querySelectorAll("rect")].filter((shape) => {
            const edge = shape.getBoundingClientRect();
            const before = shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING;
            return before && edge.left <= x && x <= edge.right && edge.top <= y && y <= edge.bottom;
        }).pop();
    };
    const behind = (element) => {
        for (let place = element; place; place = place.parentElement) {
            const shape = place.matches("text") && under(place);
            const color = shape ? getComputedStyle(shape).fill : getComputedStyle(place).backgroundColor;
            if ((parts(color)[3] ?? 1) > 0) return color;
        }
    };
    const faint = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || element.matches("title, script") || !element.checkVisibility()) continue;
        const front = getComputedStyle(element)[element.matches("text") ? "fill" : "color"];
        const [dark, light] = [front, behind(element)].map(luminance).sort((a, b) => a - b);
        if ((light + 0.05) / (dark + 0.05) < 4.5) faint.push(element.outerHTML.slice(0, 120));
    }
    return faint;
}"""


def test_an_atlas_is_searched_with_keys_and_read_in_light_and_dark(tabs: Tabs, tmp_path: Path) -> None:
    # kills: a script that the policy of the page forbids, hits that keys do not reach, a text that a theme forgets
    violated = Outcome((Check("cosine", 2.0, high=1.0),))
    other = a_result("furuya-2024-x", chapter="second", chapter_title="Second", title="Alignment", run=violated)
    view = View(Atlas.of([a_result(run=Outcome(())), a_result("castin-2025-b"), other]))
    (tmp_path / "index.html").write_text(overview_page(view), encoding="utf-8")
    for i, part in enumerate(view.pages):
        (tmp_path / part.file).write_text(chapter_page(view, i, {}), encoding="utf-8")
    page, said = tabs.context.new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.emulate_media(color_scheme="dark")
    page.goto((tmp_path / "index.html").as_uri())
    darkness = "() => getComputedStyle(document.body).backgroundColor"
    themes = {"Theme: as the system": "dark", "Theme: light": "light", "Theme: dark": "dark"}
    for name, kind in themes.items():
        switch = page.get_by_role("button", name=name)
        assert page.evaluate(darkness) == {"dark": "rgb(18, 18, 17)", "light": "rgb(251, 251, 249)"}[kind]
        assert page.evaluate(_FAINT) == []
        switch.press("Enter")
    page.get_by_role("button", name="Theme: as the system").press("Shift+Tab")
    assert page.evaluate("() => document.activeElement.id") == "query"
    page.keyboard.press("Tab")
    page.keyboard.press("/")
    page.keyboard.type("Violàted ALIGN")
    assert page.locator("#found p").inner_text() == "1 claim"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/chapter-second.html#furuya-2024-x")
    box = page.locator("#furuya-2024-x h3").bounding_box()
    assert 0 < box["y"] < 900
    assert page.evaluate(_FAINT) == []
    page.goto((tmp_path / "chapter-second.html").as_uri())  # without a place in it, from which keys would go on
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.innerText") == "Skip to the content"
    assert said == []
    page.close()


def test_no_request_left_the_machine_and_nothing_went_wrong(tabs: Tabs) -> None:
    if not tabs.pages:
        tabs.show("compile")
    requests = tabs.requests()
    elsewhere = [url for url in requests if not url.startswith((tabs.address, "data:", "blob:"))]
    assert elsewhere == []
    assert len(requests) > 50
    assert tabs.complaints == []

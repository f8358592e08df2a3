"""Pages as people see them, in headless Chromium: laptop, phone, light and dark; what they say, fetch and overflow."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from bayes_planet.report import report
from bayes_planet.report.figures import style
from bayes_planet.report.pages.page import render
from bayes_planet.report.pages.section import Details, Note, Section, Table, Video, picture
from tests.report.browser import CHROMIUM, Browser
from tests.report.make import make_run

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: apt-get install chromium")

REAL = Path(__file__).with_name("real_run")
WINDOWS = {
    "laptop": {"width": 1440},
    "phone": {"width": 390, "phone": True},
    "dark laptop": {"width": 1440, "dark": True},
    "dark phone": {"width": 390, "phone": True, "dark": True},
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    started = Browser(tmp_path_factory.mktemp("chromium") / "profile")
    yield started
    started.close()


def hard_page(path: Path) -> Path:
    """What is hard to lay out: wide figures and tables, long words, hostile text, a video, everything at once."""
    with style.theme():
        wide, axes = style.subplots(1, 3, width=style.WIDE)
        axes[0].plot([0, 1], [0, 1])
        half, one = style.subplots()
        one.plot([0, 1], [1, 0])
    frames = np.random.default_rng(0).integers(0, 256, (15, 20, 66, 3), np.uint8)
    word, hostile = "W" * 300, "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'>"
    table = Table([word[:20] + str(i) for i in range(12)], [[hostile, *range(11)]], word)
    parts = [
        Note(word, "missing"),
        Note(hostile, "warning"),
        table,
        picture(wide, word, hostile),
        picture(half, "c", "a"),
    ]
    parts += [
        Video(frames, 10, hostile),
        Details(word, [table, Note(word)]),
        Section(word, word, [Note("`" + word + "`")]),
    ]
    path.write_bytes(render(word + hostile, word, [Section(word, word, parts), Section("Second", "", parts)], word))
    return path


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    root = tmp_path_factory.mktemp("pages")
    folders = [
        make_run(root / f"{m}{s}", m, s, episodes=10, video=s == 0) for m in ("bayes_planet", "planet") for s in (0, 1)
    ]
    return {
        "real run": report([REAL], root / "real.html", load_analysis=lambda run: None).path,
        "study": report(folders, root / "study.html", load_analysis=lambda run: None, detailed=1).path,
        "hard": hard_page(root / "hard.html"),
    }


OPEN_ALL = "document.querySelectorAll('details').forEach(each => each.open = true)"
OVERFLOWING = """(() => {
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth) found.push('page ' + document.documentElement.scrollWidth);
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('.scroll') && !e.matches('.scroll')) continue;
    if (e.matches('.skip')) continue;
    const box = e.getBoundingClientRect();
    if (box.width && (box.right > innerWidth + 1 || box.left < -1)) found.push(e.tagName + ' ' + e.className + ' ' + box.right);
  }
  return found.slice(0, 5);
})()"""
IMAGES = """Promise.all([...document.images].map(i => i.decode().then(() => [i.naturalWidth, i.alt.trim().length],
                                                                 () => [0, 0])))"""
# Contrast of every visible piece of text with what lies behind it.
FAINT_TEXT = """(() => {
  const parse = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
                      .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor);
                          if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !e.getClientRects().length || e.closest('video, .skip')) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) found.push(e.tagName + ': ' + walker.currentNode.data.slice(0, 40));
  }
  return found.slice(0, 5);
})()"""
PLAY = """Promise.all([...document.querySelectorAll('video')].map(async v => {
  await v.play();
  const start = performance.now();
  while (v.currentTime < .2 && performance.now() - start < 8000) await new Promise(r => setTimeout(r, 30));
  v.pause();
  return [v.currentTime >= .2, v.videoWidth > 0, v.error === null];
}))"""


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("name", ["real run", "study", "hard"])
def test_page_is_whole(browser, pages, name, window):
    browser.open(pages[name], **WINDOWS[window])
    for opened in (False, True):
        if opened:
            browser.run(OPEN_ALL)
        assert browser.run(OVERFLOWING) == []
        assert browser.run(FAINT_TEXT) == []
    images = browser.run(IMAGES)
    assert images and all(width > 0 and alt > 0 for width, alt in images)
    assert browser.run("window.pwned === undefined")
    assert browser.console == []
    assert [address for address in browser.requests if not address.startswith("data:")] == []


@pytest.mark.parametrize("name", ["study", "hard"])
def test_videos_play(browser, pages, name):
    browser.open(pages[name], 1440)
    browser.run(OPEN_ALL)
    played = browser.run(PLAY)
    assert played and all(all(each) for each in played)
    assert browser.console == []


@pytest.mark.parametrize("name", ["real run", "study"])
def test_figures_are_legible_on_a_phone(browser, pages, name):
    """Text of 9 points in a figure is 12 pixels at its natural size; it stays above 9."""
    browser.open(pages[name], **WINDOWS["phone"])
    browser.run(OPEN_ALL)
    scales = browser.run(
        "[...document.images].map(i => i.getBoundingClientRect().width / parseFloat(i.style.getPropertyValue('--natural')))"
    )
    assert scales and min(scales) > 0.72


def test_headings_have_no_gap_and_links_lead_somewhere(browser, pages):
    browser.open(pages["study"], 1440)
    levels = browser.run("[...document.querySelectorAll('h1, h2, h3, h4')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert browser.run(
        "[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.getAttribute('href')))"
    )
    assert browser.run("document.documentElement.lang") == "en"


def test_dark_page_has_other_ink(browser, pages, tmp_path):
    import imageio.v2 as imageio

    shots = {}
    for dark in (False, True):
        browser.open(pages["real run"], 1440, dark=dark)
        top = browser.run("document.querySelector('figure').getBoundingClientRect().top + scrollY")
        shots[dark] = imageio.imread(browser.screenshot(tmp_path / f"{dark}.png", top, 400))[..., :3]
    assert np.median(shots[False]) > 235 and np.median(shots[True]) < 50
    # The curves and letters are drawn on both: pixels far from the background.
    for shot in shots.values():
        assert np.mean(np.abs(shot.astype(int) - np.median(shot)).max(-1) > 80) > 0.004


def test_the_browser_would_notice(browser, tmp_path):
    """The checks above can fail: a page that errs, fetches and overflows."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><body style='background:#fff'><p style='width:3000px;color:#bbb'>faint</p><img src='missing.png' alt=''>"
        "<script>console.error('said'); setTimeout(() => { throw new Error('thrown') })</script>"
    )
    browser.open(page, 390, phone=False)
    browser.run("new Promise(done => setTimeout(() => done(true), 100))")
    assert any("said" in text for text in browser.console) and any("Uncaught" in text for text in browser.console)
    assert any(address.endswith("missing.png") for address in browser.requests)
    assert browser.run(OVERFLOWING) and browser.run(FAINT_TEXT) and browser.run(IMAGES) == [[0, 0]]

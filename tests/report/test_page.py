"""The file: nothing in it runs or is fetched, whatever stands in names and settings; and it stays within its size."""

import base64
import html.parser
import io
import json
import re
import xml.etree.ElementTree

import imageio.v2 as imageio
import matplotlib
import numpy as np
import pytest

from bayes_planet.report import report
from bayes_planet.report.figures import style
from bayes_planet.report.figures import uncertainty as uncertainty_figures
from bayes_planet.report.figures.probe import probe_section
from bayes_planet.report.pages.page import render
from bayes_planet.report.pages.section import Details, Note, Picture, Section, Table, Video, picture
from bayes_planet.report.videos.files import save_video
from bayes_planet.report.videos.runs import read_frames
from tests.report.make import make_run

HOSTILE = "</title><script>window.pwned = 1</script><img src=x onerror='window.pwned=1'>\" onload=\"x"
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Document(html.parser.HTMLParser):
    """Tags with their attributes and the text; fails where tags are not nested."""

    def __init__(self, page: bytes):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(page.decode())
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def drawn(caption="a caption", alt="what it shows"):
    with style.theme():
        figure, axes = style.subplots()
        axes.plot([0, 1], [0, 1], label="one")
        axes.legend()
    return picture(figure, caption, alt)


FRAMES = np.zeros((5, 16, 16, 3), np.uint8) + np.arange(0, 250, 50, dtype=np.uint8)[:, None, None, None]


def every_part(text):
    return [
        Note(text),
        Note(text, "missing"),
        Note(text, "warning"),
        Table((text, "b"), [(text, 1.5), ("x", None)], text),
        drawn(text, text),
        Video(FRAMES, 10, text),
        Details(text, [Note(text), Section(text, text, [Note(text)])]),
    ]


def test_hostile_text_stays_text():
    page = render(HOSTILE, HOSTILE, [Section(HOSTILE, HOSTILE, every_part(HOSTILE))], HOSTILE)
    document = Document(page)
    names = {name for name, _ in document.tags}
    assert not names & {"script", "iframe", "object", "embed", "form", "base"}
    assert not [attribute for _, attributes in document.tags for attribute in attributes if attribute.startswith("on")]
    assert {attributes["src"].partition(":")[0] for attributes in document.all("img")} == {"data"}
    assert "".join(document.text).count("window.pwned = 1") >= 12  # shown as it is


def test_nothing_is_fetched_and_nothing_may_run():
    page = render("t", "s", [Section("a", "b", every_part("text"))], "f")
    document = Document(page)
    addresses = [a[key] for _, a in document.tags for key in ("src", "href", "srcset", "poster", "action") if key in a]
    assert addresses and all(address.startswith(("data:", "#")) for address in addresses)
    policy = next(a["content"] for a in document.all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'") and "script-src" not in policy
    assert not re.search(rb"@import|url\(", page)


def test_contents_lead_to_every_section():
    titles = ["Score", "Score", "Ünï ☃", "***", "a b"]
    document = Document(render("t", "s", [Section(title, "", []) for title in titles], "f"))
    identities = [a["id"] for name, a in document.tags if name == "h2" and "id" in a]
    assert len(set(identities)) == len(titles)
    assert [a["href"] for a in document.all("a") if a.get("class") != "skip"] == [f"#{each}" for each in identities]


def test_control_characters_are_shown_not_written():
    page = render("a\x00b\x1b[31m\ud800", "s", [], "f")
    assert not re.search(rb"[\x00-\x08\x0b-\x1f]", page)
    assert "a\ufffdb\ufffd[31m\ufffd" in page.decode()


def test_table_cells():
    rows = [("x", 0.123456789, 12345678.9, None, 3), ("y", 1e-7, -0.5, 2.0, 40)]
    document = Document(render("t", "s", [Section("a", "", [Table("abcde", rows, "c")])], "f"))
    text = "|".join(piece for piece in document.text if piece.strip())
    assert "x|0.1235|12345679|–|3|y|1e-07|-0.5|2|40" in text
    with pytest.raises(ValueError, match=r"has 2 cells. Accepted: 3"):
        Table("abc", [(1, 2)], "")


def decoded(video, path):
    path.write_bytes(base64.b64decode(video["src"].partition("base64,")[2]))
    return np.stack(imageio.mimread(path, memtest=False))


def test_video_holds_its_frames(tmp_path):
    """Small frames are doubled, so that colours keep their places; those that are doubled already are not again."""
    edges = np.zeros((5, 15, 16, 3), np.uint8)
    for number in range(5):
        edges[number, :, : 3 * number + 1] = (200, 30, 30)
    for given, shape in ((edges, (5, 30, 32, 3)), (edges.repeat(2, 1).repeat(2, 2), (5, 30, 32, 3))):
        document = Document(render("t", "s", [Section("a", "", [Video(given, 10, "c")])], "f"))
        (video,) = document.all("video")
        frames = decoded(video, tmp_path / "video.mp4")
        assert frames.shape == shape
        assert np.abs(frames[:, ::2, ::2].astype(int) - edges).mean() < 4
        assert {"controls", "loop", "muted", "playsinline"} <= set(video)


def test_page_keeps_within_its_size():
    parts = [drawn(f"picture {number}") for number in range(6)]
    one = len(base64.b64encode(parts[0].data))
    page = render("t", "s", [Section("a", "", parts)], "f", max_bytes=3 * one + one // 2)
    document = Document(page)
    assert len(document.all("img")) == 3
    text = "".join(document.text)
    assert text.count("is left out, as the page has reached its size limit") == 3 and "picture 5" in text


def test_picture_follows_the_page():
    part = drawn()
    root = xml.etree.ElementTree.fromstring(part.data)
    text = part.data.decode()
    assert root.tag.endswith("svg") and part.width == round(style.HALF * 96)
    for colour in (style.INK, style.FAINT, style.COLOURS[0].lower()):
        assert f": {colour}" not in text
    for name in ("ink", "faint", "c0"):
        assert text.count(f"--{name}:") == 2 and f"var(--{name})" in text  # a light and a dark value, and their use
    assert "prefers-color-scheme:dark" in text and "DOCTYPE" not in text
    assert drawn().data == part.data  # the same figure is the same file
    with pytest.raises(ValueError, match="alternative text"):
        Picture(b"x", "image/png", "caption", " ", 10)


def contrast(one, other):
    def luminance(colour):
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_curves_stand_out_on_both_pages():
    """WCAG 1.4.11: 3 to 1 for what a figure is read from. Backgrounds: the cards of page_style."""
    assert min(contrast(colour, "#f5f7fa") for colour in style.COLOURS) >= 2.9
    assert min(contrast(colour, "#1c222c") for colour in style.ON_DARK) >= 3


def test_merged_frames_of_a_gif_come_apart_again(tmp_path):
    order = [0, 0, 0, 1, 2, 2, 3]
    path = save_video(tmp_path / "film.gif", FRAMES[order], fps=10)
    frames, fps = read_frames(path)
    assert fps == 10 and frames.shape == (7, 16, 16, 3)
    assert np.abs(frames.astype(int) - FRAMES[order]).max() <= 3
    path = save_video(tmp_path / "film.mp4", FRAMES[order], fps=10)
    frames, fps = read_frames(path)
    assert fps == 10 and len(frames) == 7


@pytest.mark.thorough
def test_hostile_run_names_and_settings(tmp_path):
    name = "<img src=x onerror=alert(1)>\"'&`x`"
    folder = make_run(tmp_path / name, episodes=5, overrides=("env.name='<script>alert(1)</script>'",))
    document = Document((report([folder], tmp_path / "page.html")).path.read_bytes())
    assert not document.all("script")
    assert all(a["src"].startswith("data:") for a in document.all("img"))
    text = "".join(document.text)
    assert "<script>alert(1)</script>" in text and "<img src=x onerror=alert(1)>\"'&" in text


HOSTILE_LABELS = ["$x$", r"$\frac$", "kernel_$^$_", "_hidden", r"a\$b$", "$", "plain_name"]


def test_labels_are_drawn_as_they_are_written():
    with style.theme(), matplotlib.rc_context({"svg.fonttype": "none"}):
        figure, axes = style.subplots()
        for index, text in enumerate(HOSTILE_LABELS):
            axes.plot([index], [index], label=style.literal(text))
        axes.legend()
        data = io.BytesIO()
        figure.savefig(data, format="svg")
    texts = [
        element.text.strip() for element in xml.etree.ElementTree.fromstring(data.getvalue()).iter() if element.text
    ]
    assert [text for text in texts if text in HOSTILE_LABELS] == HOSTILE_LABELS


@pytest.mark.thorough
def test_names_that_look_like_mathematics_are_drawn(tmp_path):
    """Of layers, settings (which name a method), tasks, runs and joints; matplotlib could not parse these."""
    layers = dict(zip(("prior_hidden", "prior_input", "prior_mean", "prior_stddev"), HOSTILE_LABELS[1:5], strict=True))
    folders = []
    for number, factory in enumerate((r"m:$\frac$", r"m:$\sqrt$")):
        task = (r"env.name='dm_control/$\left$'",) if number else ()
        overrides = (f"model.factory='{factory}'", *task)
        folders.append(make_run(tmp_path / f"${number}^$", seed=number, episodes=5, overrides=overrides))
        text = (folders[-1] / "metrics.jsonl").read_text()
        for old, new in layers.items():
            text = text.replace(f'/{old}"', f"/{json.dumps(new)[1:]}")
        (folders[-1] / "metrics.jsonl").write_text(text)
    folders.append(make_run(tmp_path / "no$^$config", episodes=5))
    (folders[-1] / "config.yaml").unlink()
    page = report(folders, tmp_path / "page.html", detailed=1).path.read_text()
    assert page.count(r"$\frac$") > 3 and "unknown method (no$^$config)" in page

    histogram = {"edges": [0.1, 1.0, 10.0], "counts": [1, 2]}
    weights = {f"{kind}/{layer}": histogram for kind in ("weight_stddev", "weight_snr") for layer in HOSTILE_LABELS}
    drawn = uncertainty_figures._weights({"weights": weights, "median_snr": {}})
    r2 = {"model": {"both": {"linear": [0.5] * len(HOSTILE_LABELS)}}}
    joints = {"names": HOSTILE_LABELS, "units": ["$^$"] * len(HOSTILE_LABELS), "r2": r2, "skipped": 0}
    traces = np.zeros([9, len(HOSTILE_LABELS)])
    section = probe_section({"probe": joints}, {"probe/true": traces, "probe/model/linear": traces})
    assert all(part.data for part in (drawn, *section.parts[:2]))

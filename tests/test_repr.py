"""What notebooks show of Splits and Partitions: right, bounded, and no way in for markup."""

from __future__ import annotations

import pickle
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from spliter import Split
from spliter._plan import Plan
from spliter._planning.options import SplitOptions
from spliter.html._block_map import block_map, colour
from tests.fake_engine import fake_split

BOUND = 100_000


class Seen(HTMLParser):
    """What a browser would make of it: tags, and the texts of tooltips and table cells."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.titles: list[str] = []
        self.cells: list[str] = []
        self.text = ""
        self.feed(markup)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        if tag == "title":
            self.titles.append("")
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "title" in self.open:
            self.titles[-1] += data
        if "td" in self.open:
            self.cells[-1] += data


def spread(nblocks: int, *names: str) -> Split:
    """Split blocks that lie in turn at the locations."""
    return fake_split([[0]] * nblocks, [[names[i % len(names)]] for i in range(nblocks)])[0]


def test_a_square_for_each_block_tells_where_it_is() -> None:
    seen = Seen(spread(5, "A", "B")._repr_html_())
    assert seen.titles == [f"block {i} at {'AB'[i % 2]}" for i in range(5)]


def test_imbalance_is_largest_over_mean() -> None:
    parts, _, _ = fake_split([[0]] * 4, [["A"], ["A"], ["A"], ["B"]])
    assert "largest location over the mean: 1.50 in bytes, 1.50 in blocks" in parts._repr_html_()
    assert "over the mean" not in spread(4, "A")._repr_html_()


def test_a_location_with_most_blocks_is_pointed_out() -> None:
    crowded = spread_over(9, 1)
    assert "9 of 10 blocks are at one location, A" in crowded._repr_html_()
    assert "at one location" not in spread_over(5, 4)._repr_html_()
    assert "at one location" not in spread_over(3)._repr_html_()
    crowded._plan.blocks.spread_advice = "Use <b>force</b>."
    assert "Use &lt;b&gt;force&lt;/b&gt;." in crowded._repr_html_()


def spread_over(*counts: int) -> Split:
    """Split as many blocks at each of some locations."""
    names = [name for name, count in zip("ABC", counts, strict=False) for _ in range(count)]
    return fake_split([[0]] * len(names), [[name] for name in names])[0]


def test_blocks_of_unknown_size_are_said_to_be_that() -> None:
    parts, blocks, _ = fake_split([[0]] * 2, [["A"], ["B"]])
    placement = blocks.locate()
    placement.nbytes[:] = 0
    blocks.locate = lambda: placement  # type: ignore[method-assign]
    shown = Split(Plan(blocks, parts._plan.executor, SplitOptions()))._repr_html_()
    assert "sizes not known" in shown
    assert "not known in bytes, 1.00 in blocks" in shown


def test_squares_of_many_blocks_are_divided() -> None:
    # 800 blocks are two to a square: the first of both locations, the last of one.
    owner = np.array([0, 1] * 200 + [1] * 400)
    drawn = block_map(owner, (800,), {0: "A", 1: "B"})
    titles = Seen(drawn).titles
    assert len(titles) == 400
    assert titles[0] == "blocks 0 to 1: 1 at 1, 1 at 2"
    assert titles[-1] == "blocks 798 to 799: 2 at 2"
    widths = {
        fill: set(re.findall(r"h([\d.]+)v", path))
        for fill, path in re.findall(r'<path fill="([^"]+)" d="([^"]+)"/>', drawn)
    }
    assert widths == {colour(0): {"8"}, colour(1): {"8", "16"}}


def test_every_block_is_in_one_square() -> None:
    for grid in [(1,), (399,), (401,), (7, 3), (50, 1), (21, 41), (3, 5, 7), (1, 900)]:
        titles = Seen(block_map(np.zeros(np.prod(grid), dtype=np.int64), grid, {0: "A"})).titles
        blocks = sum(
            int(found[1]) if (found := re.search(r": (\d+) at 1$", title)) else 1
            for title in titles
        )
        assert blocks == np.prod(grid), grid
        assert len(titles) <= 400, grid


def test_partition_stands_out_among_the_others() -> None:
    parts = spread(6, "A", "B")
    seen = Seen(parts[1]._repr_html_())
    assert "Partition: 3 blocks (8 B each), 24 B, shape (3), at B" in seen.text
    assert seen.titles[:2] == ["block 0 in another partition", "block 1 at B"]
    parts.close()
    assert "closed" in parts._repr_html_()


def test_partition_has_the_colour_of_its_location_on_the_map_of_the_split() -> None:
    parts, _, _ = fake_split([[0]] * 4, [["A"], ["B"], ["C"], ["C"]], partitions_per_location=2)
    fills = [re.findall(r'<path fill="(#\w{6})"', part._repr_html_()) for part in parts]
    assert fills == [[colour(0)], [colour(1)], [colour(2)], [colour(2)]]
    there = pickle.loads(pickle.dumps(parts[1]))
    assert f'fill="{colour(0)}"' in there._repr_html_()


HOSTILE = ["</svg><script>alert(1)</script>", "\"><img src=x onerror='alert(2)'>", "&lt;b&gt;"]


@pytest.mark.parametrize("times", [1, 100])
def test_names_cannot_bring_markup(times: int) -> None:
    parts = spread(6, *(name * times for name in HOSTILE))
    shown = [parts._repr_html_(), parts[0]._repr_html_()]
    plain = spread(6, "A", "B", "C")
    expected = [plain._repr_html_(), plain[0]._repr_html_()]
    for markup, harmless in zip(shown, expected, strict=True):
        assert Seen(markup).tags == Seen(harmless).tags
    if times == 1:
        assert any(name in cell for name in HOSTILE for cell in Seen(shown[0]).cells)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["A{}", "<>&\"'" * 40 + "{}", "tcp://node-{}.cluster:8786"])
@pytest.mark.parametrize("locations", [1, 4, 1000])
def test_html_is_bounded(name: str, locations: int) -> None:
    for nblocks in (400, 50_000):
        parts = spread(nblocks, *(name.format(i) for i in range(locations)))
        assert len(parts._repr_html_().encode()) < BOUND
        assert len(parts[0]._repr_html_().encode()) < BOUND

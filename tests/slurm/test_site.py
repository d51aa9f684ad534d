"""Site profiles: those that ship, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from spliter_experiments.harness.errors import ProfileError
from spliter_slurm.render import interface_of
from spliter_slurm.site import load_site, parse_site, site_names

GOOD = """description = "mine"
nodes = 4
sockets = 1
cores_per_socket = 8
memory_gib = 16.0
hours = 2
"""


@pytest.mark.parametrize("name", site_names())
def test_profiles_that_ship_can_be_read(name: str) -> None:
    site = load_site(name)
    assert site.name == name
    assert site.description


def test_own_profile(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text(GOOD)
    assert load_site(str(path)).name == "ours"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nods = 4", "nods: Extra inputs"),
        ("network = 'fabric'", "'fabric', which is not among the interfaces"),
        ("network = 'ib0'", "network: Input should be '', 'fabric' or 'ethernet'"),
        ("modules = 'python'", "modules: Input should be a valid"),
        ("environment = { '1 x' = 'y' }", "environment.1 x"),
        ("required = ['money']", "required.0"),
        ("modules = [", "not TOML"),
    ],
)
def test_mistakes_are_told_with_their_entry(line: str, said: str) -> None:
    with pytest.raises(ProfileError, match=r"ours\.toml") as raised:
        parse_site(GOOD + line, "ours", "ours.toml")
    assert said in str(raised.value)


def test_missing_entries_are_named() -> None:
    with pytest.raises(ProfileError, match="nodes: Field required"):
        parse_site(GOOD.replace("nodes = 4\n", ""), "ours", "ours.toml")


def test_profile_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match="cannot read the site profile"):
        load_site(str(path))


def test_networks_by_option() -> None:
    site = load_site("marenostrum4")
    assert interface_of(site, "fabric") == "ib0"
    assert interface_of(site, "ethernet") == site.interfaces["ethernet"]
    assert interface_of(site, "hsn0") == "hsn0"
    assert interface_of(load_site("generic"), None) == ""
    with pytest.raises(ProfileError, match="does not say which interface"):
        interface_of(load_site("local"), "fabric")

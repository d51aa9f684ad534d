"""Load scenarios: those of the paper's figures, shipped with the package, or the user's files."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from pydantic import ValidationError

from spliter_experiments.evaluation.schema import Scenario
from spliter_experiments.harness.errors import ScenarioError
from spliter_experiments.harness.files import mistakes, parse_toml

FIGURES = (*(str(number) for number in range(9, 22)), "table1")
"""Names of all experiments in the paper's evaluation, in its order."""

FOLDER = "catalog"


def figure_name(text: str) -> str:
    """Normalize the name of a figure.

    >>> [figure_name(text) for text in ("9", "fig09", "Figure 9", "Table 1")]
    ['9', '9', '9', 'table1']
    """
    word = re.sub(r"^fig(ure)?|[\s_.-]", "", text.strip().lower()).lstrip("0")
    if word not in FIGURES:
        raise ScenarioError(
            f"there is no figure {text!r}; take one of {', '.join(FIGURES)}, or the path of a "
            "scenario file (.toml)"
        )
    return word


def load_scenario(figure: str) -> Scenario:
    """Load a scenario of the paper, or one from a file.

    >>> load_scenario("9").parameters.app
    'histogram'
    """
    text, origin = read_scenario(figure)
    return parse_scenario(text, origin)


def read_scenario(figure: str) -> tuple[str, str]:
    if not figure.endswith(".toml"):
        name = f"{file_stem(figure_name(figure))}.toml"
        file = resources.files(__package__) / FOLDER / name
        return file.read_text(encoding="utf-8"), name
    try:
        return Path(figure).read_text(encoding="utf-8"), figure
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"cannot read the scenario {figure}: {error}") from error


def file_stem(figure: str) -> str:
    """Return the stem of the file names of a figure.

    >>> file_stem("9"), file_stem("table1")
    ('fig09', 'table1')
    """
    return f"fig{int(figure):02}" if figure.isdecimal() else figure


def parse_scenario(text: str, origin: str) -> Scenario:
    try:
        return Scenario.model_validate(parse_toml(text))
    except ValidationError as error:
        wrong = mistakes(error, hidden=APPS)
        raise ScenarioError(f"{origin} is not a scenario:\n{wrong}") from error
    except ValueError as error:
        raise ScenarioError(f"{origin} is not TOML: {error}") from error


APPS = frozenset({"histogram", "kmeans", "csvm", "knn"})
"""Apps that scenarios exist for."""

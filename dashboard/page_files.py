"""What a page loads: one script and one style sheet of our own, and of dash's libraries those that every page needs."""

from __future__ import annotations

import hashlib
import importlib.resources
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from dash import Dash
from flask import Response, send_from_directory

from analytics.tables.palette import with_palette
from dashboard.access.refusal import answer

_FILES = importlib.resources.files("dashboard")
_ASSETS = _FILES.joinpath("assets")
_CHARTS_LIBRARY = "/_dash-component-suites/plotly/package_data/plotly.min.js"
_ADDRESS = "/assets/pages-<digest>.<suffix>"
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
_KEPT = "private, max-age=31536000, immutable"
_LATER = ("dash_ag_grid", "dash_table")
"""Libraries that no page waits for: tables.js fetches the first with the first table, nothing uses the second."""


class PagesApp(Dash):  # type: ignore[misc]  # dash is untyped
    """Dash with our own index page."""

    def __init__(self, **options: Any) -> None:
        super().__init__(
            index_string=with_palette(_FILES.joinpath("index.html").read_text(encoding="utf-8")),
            assets_folder=str(_ASSETS),
            include_assets_files=False,
            meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
            serve_locally=True,
            **options,
        )
        self._own = {suffix: "\n".join(_texts(suffix)).encode() for suffix in _TYPES}
        self.server.add_url_rule(_ADDRESS, "own_files", self._file)
        # instead of all of Plotly, which dash requests with a page's first graph: the part in use, a quarter as large
        bundle = partial(send_from_directory, str(_ASSETS.joinpath("vendor")), "plotly.min.js")
        self.server.add_url_rule(_CHARTS_LIBRARY, "charts_library", bundle)

    def interpolate_index(self, *, scripts: str, css: str, **parts: str) -> str:
        """Return the index page: with our own files, and without the libraries that no page waits for."""
        first, later = _divided(scripts)
        grid = next(address for name, address in later if name == "dash_ag_grid")
        style, script = (_address(suffix, self._own[suffix]) for suffix in ("css", "js"))
        return super().interpolate_index(  # type: ignore[no-any-return]
            scripts=f'{first}\n<script src="{script}" data-grid="{grid}"></script>',
            css=f'{css}\n<link rel="stylesheet" href="{style}">',
            **parts,
        )

    def _file(self, digest: str, suffix: str) -> Response:
        content = self._own.get(suffix, b"")
        if digest != _digest(content):
            return answer("fallow: there is no such file; load the page again\n", 404)
        return Response(content, content_type=_TYPES[suffix], headers={"Cache-Control": _KEPT})


def _divided(scripts: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the tags of scripts that every page needs, and the libraries of the others with their addresses."""
    found: Mapping[str, list[Any]] = {"first": [], "later": []}
    for tag in scripts.splitlines():
        library = re.search(rf'src="([^"]*/({"|".join(_LATER)})/[^"]*)"', tag)
        found["later" if library else "first"].append((library[2], library[1]) if library else tag)
    return "\n".join(found["first"]), found["later"]


def _texts(suffix: str) -> Iterator[str]:
    for path in sorted(_ASSETS.iterdir(), key=lambda each: each.name):
        if path.name.endswith(f".{suffix}"):
            yield path.read_text(encoding="utf-8")


def _address(suffix: str, content: bytes) -> str:
    """Return the address of a file, another one for other content: browsers may keep it for ever."""
    return _ADDRESS.replace("<digest>", _digest(content)).replace("<suffix>", suffix)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]

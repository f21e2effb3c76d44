"""The exporters that fallow knows, and a site's own over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from analytics.scraped.mapping.mapping_file import Content, exporter_from, mapping_content
from analytics.scraped.mapping.model import Exporter
from fallow.errors import ConfigError

_FOLDER = Path(__file__).parent / "exporters"


@cache
def built_in() -> tuple[Exporter, ...]:
    """The exporters that come with fallow, by name."""
    return tuple(exporter_from(content, name) for name, content in _contents().items())


def load_exporters(site_files: Sequence[Path] = ()) -> tuple[Exporter, ...]:
    """A site's own exporters, then those that come with fallow; a file that extends one of those takes its place.

    Raises ConfigError with what is wrong in which file.
    """
    site: dict[str, Exporter] = {}
    replaced: set[str] = set()
    for path in site_files:
        content = mapping_content(path)
        base = content.get("extend", path.stem)
        if "extend" in content:
            content = _extended(content, path.name)
        content = _prefixed(content)
        if path.stem in site:
            raise ConfigError(f"two mappings are called {path.stem}", "name one of the files differently")
        if base in replaced:
            raise ConfigError(f"two mappings extend {base}", "put both into one file")
        replaced.add(base)
        site[path.stem] = exporter_from(content, path.stem)
    return (*site.values(), *(exporter for exporter in built_in() if exporter.name not in replaced))


def metric_names(exporters: Iterable[Exporter]) -> frozenset[str]:
    """Every metric that is wanted of a server, also those that only tell which exporter a target is."""
    return frozenset(
        name
        for exporter in exporters
        for name in (*exporter.signed_by, *(mapped.metric for mapped in exporter.metrics))
    )


@cache
def _contents() -> dict[str, Content]:
    return {path.stem: mapping_content(path) for path in sorted(_FOLDER.glob("*.toml"))}


def _extended(content: Content, file: str) -> Content:
    """The base's keys under the file's own: its labels one by one, its metrics and sums by name, before the base's."""
    base = _contents().get(content["extend"]) if isinstance(content["extend"], str) else None
    if base is None:
        raise ConfigError(
            f"mapping {file}: there is no exporter {content['extend']!r} to extend", f"use {', '.join(_contents())}"
        )
    merged: dict[str, object] = {**base, **content}
    if isinstance(content.get("labels", {}), dict):
        merged["labels"] = _merged_labels(content.get("labels", {}), base.get("labels", {}))
    merged["metrics"] = _over(content.get("metrics", []), base.get("metrics", []), "name")
    merged["combined"] = _over(content.get("combined", []), base.get("combined", []), "to")
    return merged


def _merged_labels(own: Content, base: Content) -> Content:
    parts = {
        part: {**base.get(part, {}), **own[part]} for part in ("device", "holder") if isinstance(own.get(part), dict)
    }
    return {**base, **own, **parts}


def _prefixed(content: Content) -> Content:
    """The content with `prefix` before the name of every metric, for a server or an exporter that renames them all."""
    prefix = content.get("prefix", "")
    if not (prefix and isinstance(prefix, str)):
        return content
    found = dict(content)
    for key, names in (("metrics", ("name",)), ("combined", ("add", "subtract"))):
        if isinstance(entries := content.get(key), list):
            found[key] = [_renamed(entry, names, prefix) if isinstance(entry, dict) else entry for entry in entries]
    return _renamed(found, ("signed_by",), prefix)


def _renamed(entry: Content, keys: tuple[str, ...], prefix: str) -> Content:
    """The entry with the prefix before the names at these keys; what is not as it should be stays for the reader to refuse."""
    found = dict(entry)
    for key in keys:
        match entry.get(key):
            case str() as name:
                found[key] = prefix + name
            case list() as names:
                found[key] = [prefix + name if isinstance(name, str) else name for name in names]
    return found


def _over(own: object, base: list[dict[str, object]], key: str) -> object:
    """The file's entries and those of the base that it does not name; what is no list is left for the reader to refuse."""
    if not isinstance(own, list):
        return own
    named = {entry.get(key) for entry in own if isinstance(entry, dict)}
    return [*own, *(entry for entry in base if entry.get(key) not in named)]

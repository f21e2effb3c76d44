"""The report's page as PDF, with print styles of its own. WeasyPrint lays it out; no browser is needed."""

from __future__ import annotations

import warnings

from fallow.errors import MissingExtraError

_HINT = (
    "pip install 'fallow[pdf]' and pango from the system's packages, or take --format html and print it from a browser"
)


def pdf(html: str) -> bytes:
    """Return the page on A4 sheets with page numbers. Raises MissingExtraError without WeasyPrint or pango.

    The same page gives the same bytes on the same machine, because fonts differ between machines. Without
    libharfbuzz-subset, the fonts in it carry the time of writing. Nothing outside the page is fetched.
    """
    # without libharfbuzz-subset it warns and uses fontTools, which works: no failure where warnings are errors
    warnings.filterwarnings("ignore", "HarfBuzz-Subset will be required", DeprecationWarning)
    try:
        import weasyprint  # an extra, and it loads pango
    except (ImportError, OSError) as error:  # without pango the import fails with OSError
        raise MissingExtraError("a PDF needs WeasyPrint and pango, and they cannot be loaded here", _HINT) from error
    inside = weasyprint.urls.URLFetcher(allowed_protocols=("data",))
    document = weasyprint.HTML(string=_isolated(html), url_fetcher=inside)
    pages: bytes = document.write_pdf(pdf_identifier=b"fallow", pdf_tags=True)
    return pages


def _isolated(html: str) -> str:
    """Return names with isolating characters: WeasyPrint does not support `unicode-bidi`."""
    isolated = html.replace("<bdi>", "<bdi>\N{FIRST STRONG ISOLATE}")
    return isolated.replace("</bdi>", "\N{POP DIRECTIONAL ISOLATE}</bdi>")

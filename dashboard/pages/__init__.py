"""The five places of the navigation with their pages."""

from __future__ import annotations

from analytics.language.sentences import tr
from dashboard.pages.compare import COMPARE
from dashboard.pages.detail import GPU_PAGE, HOST_PAGE
from dashboard.pages.findings import FINDINGS
from dashboard.pages.overview import OVERVIEW
from dashboard.pages.page import Page, PagePlace
from dashboard.pages.plan import ALLOCATION, CAPACITY, ENDINGS, QUEUE, RIGHT_SIZE, ROOM
from dashboard.pages.purchase import ENERGY, PURCHASE
from dashboard.pages.recommendations import RECOMMENDATIONS
from dashboard.pages.report import REPORT
from dashboard.pages.settings import SETTINGS_PAGE
from dashboard.pages.timeline import TIMELINE
from dashboard.pages.trust import METHOD, PRICES, QUALITY
from dashboard.pages.users import USERS
from dashboard.pages.what_if import WHAT_IF

PLACES: tuple[PagePlace, ...] = (
    PagePlace(tr("Overview"), (OVERVIEW, REPORT)),
    PagePlace(tr("Recommendations"), (RECOMMENDATIONS, FINDINGS)),
    PagePlace(tr("Explore"), (TIMELINE, USERS, COMPARE, ENERGY, GPU_PAGE, HOST_PAGE)),
    PagePlace(tr("Plan"), (CAPACITY, QUEUE, ALLOCATION, ENDINGS, PURCHASE, RIGHT_SIZE, ROOM, WHAT_IF)),
    PagePlace(tr("Trust"), (QUALITY, PRICES, METHOD, SETTINGS_PAGE)),
)

PAGES: tuple[Page, ...] = tuple(page for place in PLACES for page in place.pages)

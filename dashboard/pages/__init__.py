"""The pages in the order in which they are listed."""

from __future__ import annotations

from dashboard.pages.detail import GPU_PAGE, HOST_PAGE
from dashboard.pages.film import FILM
from dashboard.pages.findings import FINDINGS
from dashboard.pages.page import Page
from dashboard.pages.purchase import PURCHASE
from dashboard.pages.recommendations import RECOMMENDATIONS
from dashboard.pages.report import REPORT
from dashboard.pages.settings import SETTINGS_PAGE
from dashboard.pages.table_pages import ALLOCATION, CAPACITY, COMPARE, OVERVIEW, QUALITY, QUEUE, RIGHT_SIZE
from dashboard.pages.users import USERS
from dashboard.pages.what_if import WHAT_IF

PAGES: tuple[Page, ...] = (
    OVERVIEW,
    RECOMMENDATIONS,
    FILM,
    FINDINGS,
    USERS,
    RIGHT_SIZE,
    CAPACITY,
    QUEUE,
    ALLOCATION,
    PURCHASE,
    WHAT_IF,
    COMPARE,
    REPORT,
    QUALITY,
    SETTINGS_PAGE,
    GPU_PAGE,
    HOST_PAGE,
)

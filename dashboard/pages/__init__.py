"""The pages, one file each, in the order in which they are listed."""

from __future__ import annotations

from dashboard.pages.allocation import AllocationPage
from dashboard.pages.capacity import Capacity
from dashboard.pages.compare import ComparePage
from dashboard.pages.costs import CostsPage
from dashboard.pages.detail import GpuPage, HostPage
from dashboard.pages.film import FilmPage
from dashboard.pages.findings import Findings
from dashboard.pages.opportunities import OpportunitiesPage
from dashboard.pages.overview import Overview
from dashboard.pages.page import Page
from dashboard.pages.quality import Quality
from dashboard.pages.report import ReportPage
from dashboard.pages.right_size import RightSize
from dashboard.pages.settings import SettingsPage
from dashboard.pages.users import UsersPage
from dashboard.pages.waits import WaitsPage
from dashboard.pages.what_if import WhatIfPage

PAGES: tuple[Page, ...] = (
    Overview(),
    OpportunitiesPage(),
    FilmPage(),
    Findings(),
    UsersPage(),
    RightSize(),
    Capacity(),
    WaitsPage(),
    AllocationPage(),
    CostsPage(),
    WhatIfPage(),
    ComparePage(),
    ReportPage(),
    Quality(),
    SettingsPage(),
    GpuPage(),
    HostPage(),
)

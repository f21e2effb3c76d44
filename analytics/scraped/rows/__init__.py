"""Scraped samples as rows of the lake's tables, which claim no more than the series measured."""

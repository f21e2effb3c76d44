"""The look of sections on a page: panels, tables with links, and a figure for every kind of chart."""

"""How sections look on a page: panels, tables with links, and a figure for each kind of chart."""

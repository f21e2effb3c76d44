"""The charts, one file each: a pure function from the view and the palette to a panel with its title and its words."""

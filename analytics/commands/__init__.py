"""The commands: flags in, one of the renderers out."""

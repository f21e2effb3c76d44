"""Installs, upgrades and removes the agent on a host: `fallow agent install|upgrade|uninstall`.

Every version has an environment of its own (`<prefix>/versions/<version>-<n>`); `<prefix>/current` is the one link that
says which is in force, and `<prefix>/bin` follows it. Nothing in an environment changes once it is in force.
"""

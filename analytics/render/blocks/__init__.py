"""Parts of the report as text and Markdown have them, in the reader's language: tables, lines and lists.

`block` says what one is, every other file makes some of them.
"""

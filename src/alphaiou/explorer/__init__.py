"""A page to play with: boxes, losses, α and what they do, in one file for a browser."""

from alphaiou.explorer.page import explorer_page

__all__ = ["explorer_page"]

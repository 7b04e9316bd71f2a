"""An interactive page about boxes, losses and α, as one HTML file."""

from alphaiou.explorer.page import explorer_page

__all__ = ["explorer_page"]

"""The paper as studies: its tables and figures, and its published numbers."""

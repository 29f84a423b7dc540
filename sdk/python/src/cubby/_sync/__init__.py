# Made from ../_async/__init__.py by tools/unasync.py; change that one.
"""The client, written once for both worlds."""

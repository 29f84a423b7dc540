"""Clients of other systems' interfaces, for code that moves over."""

"""The client, written once for both worlds."""

"""Texts for messages: quoted, without secrets, or as a table. Imports nothing of this package."""

"""What may be shown of texts: quoted, without secrets, as a table. Imports nothing of this package."""

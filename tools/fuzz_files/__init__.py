"""Damaged and hostile files against every reader: only clear errors, no hang, no blow-up, nothing written."""

"""Sections to one HTML page."""

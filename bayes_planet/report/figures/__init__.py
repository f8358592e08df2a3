"""Every figure of a report."""

"""What runs say: their metrics and settings, grouped and summarised."""

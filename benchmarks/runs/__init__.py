"""What runs survive, and what more machines bring them."""

"""What the package costs and reaches: speed, layers, planning, returns, and what runs survive."""

"""Files of any kind, read and written with care: what is written is whole or not there, and what is read has bounds.

Standard library, NumPy and PyYAML alone; every other part may use it.
"""

"""Devices: where memory comes from and who computes (so far NumPy on the CPU)."""

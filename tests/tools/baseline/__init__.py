"""A record of what a tree of the library does, to be compared with another's: see `__main__`."""

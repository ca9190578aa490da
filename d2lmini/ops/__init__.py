"""Every operation, declared once. Importing this package fills the registry.

`core` says what an op is; each other module is one family.
"""

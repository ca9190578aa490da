"""All rows."""

from np_rows import creation, elementwise, methods, npx, products, reductions, selection, shapes

MODULES = (elementwise, reductions, shapes, creation, selection, products, npx, methods)
ROWS = [row for module in MODULES for row in module.ROWS]

"""Every operation, declared once. Importing this package fills the registry.

`core` says what an op is; each other module is one family.
"""

import importlib as _importlib
import pkgutil as _pkgutil

for _module in _pkgutil.iter_modules(__path__):
    if _module.name not in ("core", "fluent"):
        _importlib.import_module(f"{__name__}.{_module.name}")

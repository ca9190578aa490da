"""Live views in a notebook, and the pictures that remain of them.

base       what all widgets share: shown, kept up to date, asked, closed; a picture beneath
sampler    the one thread that keeps live widgets up to date, ten times a second
watch      `watch()`: the engine at work, live
"""

from __future__ import annotations

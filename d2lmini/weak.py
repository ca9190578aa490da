"""What a weak collection holds now, while other threads let go of elements.

`list(weak_set)` and `weak_dictionary.items()` can raise "changed size during iteration": they keep
this thread's own deaths off, but another thread may be about to remove an element. Here the
references are listed at once, which no thread interrupts.

>>> from weakref import WeakKeyDictionary, WeakSet
>>> class Element: ...
>>> one, other = Element(), Element()
>>> len(living(WeakSet([one, other]))), living(WeakKeyDictionary({one: 1})) == [one]
(2, True)
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary


def living(collection: Any) -> list[Any]:
    """The elements of a WeakSet, the keys of a WeakKeyDictionary, or the values of a
    WeakValueDictionary that are alive."""
    data = collection.data
    references = list(data.values() if isinstance(collection, WeakValueDictionary) else data)
    return [element for reference in references if (element := reference()) is not None]

"""Every way in which the threads of a program can interleave, tried one after the other.

A program with threads that is wrong only now and then is wrong under certain schedules. `explore`
runs the program again and again, decides itself which thread takes the next step, and so finds
such a schedule, repeats it, shortens it and tells it as a story:

>>> import threading
>>> from d2lmini.interleavings import explore
>>> def program():
...     first, second = threading.Lock(), threading.Lock()
...     def work(one, other):
...         with one, other:
...             return
...     a = threading.Thread(target=work, args=(first, second), name="a")
...     b = threading.Thread(target=work, args=(second, first), name="b")
...     a.start(), b.start()
...     a.join(), b.join()
>>> found = explore(program)
>>> found.failure.kind
'deadlock'
>>> found.schedule == explore(program, schedule=found.schedule).schedule
True
>>> print(found)                                    # doctest: +SKIP
deadlock after 7 steps with 1 preemption; schedule "1.2>2"
all threads are blocked
  main waits at program.py:8: joins a
  a waits at program.py:4: acquires Lock second, which b holds; a holds Lock first
  b waits at program.py:4: acquires Lock first, which a holds; b holds Lock second
they wait for each other in a circle: a -> b -> a
...

The program is plain Python with `threading`, `queue`, `time` and `concurrent.futures`. Its threads
are real ones that run one at a time. A thread can be interrupted where it begins and before each
operation on a lock, condition, event, semaphore, barrier, queue, timer or thread, and in `sleep`;
with `lines=` also before each line of the given functions, and with `access` where you say. Time
is virtual: nothing sleeps.

What is found is real: it happens in the program under that schedule. What is not found may still
be there, unless the result is `complete`: then there is no failure under any schedule of the search
(with at most so many preemptions), at the steps above.

Where this differs from `engine.explore`: that one changes the order of operations that are pushed
to an engine, this one the order of the steps of threads, such as those inside an engine.

Considered before writing this: frontrun (a compiled extension in Rust, marked alpha), blanket
(schedules are written by hand, with opcodes), interleave-test and ploom (Python 3.12 or 3.13 at
least; one release, or threads and locks of its own in place of `threading`), and stateful tests of
hypothesis (no threads). None runs unchanged `threading` programs on Python 3.10 in pure Python with
virtual time. The ideas are those of CHESS (Musuvathi and others, OSDI 2008) and of loom for Rust.
"""

from d2lmini.interleavings.explorer import Exploration, explore
from d2lmini.interleavings.failures import Failure
from d2lmini.interleavings.lines import access

__all__ = ["Exploration", "Failure", "access", "explore"]

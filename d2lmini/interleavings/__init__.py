"""Every way in which the threads of a program can interleave, tried one after the other.

A program with threads that is wrong only now and then is wrong under certain schedules. `explore`
runs the program again and again, decides itself which thread takes the next step, and so finds
such a schedule, repeats it, shortens it and prints it step by step:

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
>>> print(found)                                                        # doctest: +ELLIPSIS
deadlock after 7 steps with 1 preemption, found in ... schedules; schedule "1.2>2"
all threads are blocked
  main waits at program:9: joins a
  a waits at work:4: acquires Lock second, which b holds; a holds Lock first
  b waits at work:4: acquires Lock first, which a holds; b holds Lock second
they wait for each other in a circle: a -> b -> a
   1  main  program:1  def program():         begins
   2  main  program:8  a.start(), b.start()   starts a
   3  main  program:8  a.start(), b.start()   starts b
   4  a     work:3     def work(one, other):  begins
   5  a     work:4     with one, other:       acquires Lock first
      -- a is interrupted --
   6  b     work:3     def work(one, other):  begins
   7  b     work:4     with one, other:       acquires Lock second

The program is plain Python with `threading`, `queue`, `time` and `concurrent.futures`. Its threads
are real ones that run one at a time. A thread can be interrupted where it begins and before each
operation on a lock, condition, event, semaphore, barrier, queue, timer or thread, and in `sleep`;
with `lines=` also before each line of the given functions, and with `access` where you say. Time
is virtual: nothing sleeps. Every schedule is fair: a thread that can run is not kept from it for
long, so "no end" after the bound on steps means a livelock, or that nothing lets a thread run.

What is found is real: it happens in the program under that schedule. What is not found may still
be there, unless the result is `complete`: then there is no failure under any schedule of the search
(with at most so many preemptions), at the steps above.

Where this differs from `engine.explore`: that one changes the order of operations that are pushed
to an engine, this one the order of the steps of threads, such as those inside an engine.

Libraries considered in place of this one: frontrun (marked alpha; its search is a compiled
extension in Rust, which cannot be read beside a chapter), blanket (the order of events is written
by hand), interleave-test (one release; Python 3.12 at least), ploom (threads, locks and cells of
its own in place of `threading`; Python 3.13 at least) and the stateful tests of hypothesis (one
thread). The ideas are those of CHESS (Musuvathi and others, OSDI 2008) and of loom for Rust.
"""

from d2lmini.interleavings.explorer import Exploration, explore
from d2lmini.interleavings.failures import Failure
from d2lmini.interleavings.lines import access

__all__ = ["Exploration", "Failure", "access", "explore"]

"""A CuPy made of NumPy: what stands between its two halves.

`cupy_arrays` is the array half: the class `ndarray` and the functions of the module `cupy`, strict
in what they take. `cuda` is the other half: streams, events, pools, pinned memory. They meet in one
object, `cupy_arrays.hook`, which every array function goes through:

    hook.allocate(nbytes) -> memptr
        Memory of the current device. A memptr has `raw`, a NumPy array of bytes that begins where
        it points; `device`; and `memptr + n` is n bytes further. Arrays made on it (views too)
        hold it, or a sum of it, as `array.data`, so that it dies with the last of them.
    hook.execute(name, function, inputs, out=None) -> tuple of ndarray
        Do the work of the function called `name`: `function(*(x.raw for x in inputs))` gives a
        tuple of fresh NumPy arrays, has no other effect, and may be called at any time and more
        than once. They end in `out`, a tuple of arrays of those shapes and dtypes (an array that is
        changed in place is among the inputs and in `out`), or in new ones. Where the work is put
        off, `specs_of(function, inputs)` tells the shapes and dtypes of what will come.
    hook.synchronize(why, array=None)
        The host waits for the current stream, to read `array`: `item`, `bool()`, `nonzero`, ...
    hook.to_host(array, out, stream), hook.from_host(array, source, stream)
        `get` and `set`: copies on `stream` (None: the current one). Where the NumPy array is pinned
        memory they return before they are done; to other memory they wait.

Work that is put off must keep no array alive: its memory dies with the last reference of the
program, while work on it is pending, as it does with CuPy. So `function` holds none.

`array.raw` is the NumPy view of an array's memory. `cupy_arrays.Immediate`, the hook to begin
with, does everything at once; within `cuda.fake_cuda(devices, memory, seed)` work goes to streams
that run in a random legal order, and two accesses that nothing orders are an OrderError.
`cupy_module.cupy` is the module that tests give to the library; that scope adds its own names to
it. `cupy_arrays.host_syncs` lists why the host waited, and within `cupy_arrays.no_host_sync()`
waiting is an error.
"""

import d2lmini.cuda.device

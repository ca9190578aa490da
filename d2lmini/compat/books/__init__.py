"""The helper packages of the two editions of *Dive into Deep Learning*, for the books' programs.

    import d2lzh as d2l                 # the first edition: these names are also in `d2lmini.d2l`
    from d2l import mxnet as d2l        # the second edition, which computes with `np` and `npx`

Both work after `d2lmini.install_as_mxnet()`, and in programs that `d2lmini run` starts. The
editions share their loops; each has the names, signatures and printed lines of its book:

    shared.py     one epoch, one step, small models, files on this machine, figures
    first.py      the first edition's data and training, nets that write
    second/       the second edition

`d2lmini/addons.py` says which name of `d2lmini.d2l` is in which of these files.
"""

"""The helper packages of the two editions of *Dive into Deep Learning*, for the books' programs.

    import d2lzh as d2l                 # the first edition: these names are also in `d2lmini.d2l`
    from d2l import mxnet as d2l        # the second edition, which computes with `np` and `npx`

Both work after `d2lmini.install_as_mxnet()`, and in programs that `d2lmini run` starts. The
editions share their loops; each has the names, signatures and printed lines of its book:

    loops.py      one step, one epoch, one optimizer after the other
    models.py     Residual, resnet18, linear regression, a convolution by hand
    figures.py    curves, pictures, boxes, the path of an optimizer
    files.py      data that must be on this machine
    characters.py batches of a text, a net that writes; recurrent nets of the first edition
    first.py      the first edition's data and training
    second/       the second edition

`d2lmini/addons.py` says which name of `d2lmini.d2l` is in which of these files.
"""

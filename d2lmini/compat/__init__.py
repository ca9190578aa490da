"""What programs of MXNet's time use, and new programs need not: the add-on for old code.

mxnet_alias          `import mxnet` gets this library (`install_as_mxnet`); runs old notebooks
io                   `mx.io`: data iterators of the time before Gluon
bind, executor       `Symbol.bind`: a Symbol bound to arrays
mx_profiler, mx_profiler_objects
                     `mx.profiler`: set_config, dump, dumps; Task, Counter, ...
test_utils           `mx.test_utils`: what tests of one's own programs call
"""

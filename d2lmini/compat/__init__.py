"""Interfaces of MXNet that old programs use and new programs do not need: an add-on.

mxnet_alias          `import mxnet` gets this library (`install_as_mxnet`); runs old notebooks
left_out             what stands for the parts of MXNet that are not here
io                   `mx.io`: data iterators from before Gluon
executor             `Symbol.bind`: a Symbol bound to arrays
model                `mx.model`: load_checkpoint, save_checkpoint, load_params
mx_profiler          `mx.profiler`: set_config, set_state, dump, dumps
runtime              `mx.runtime`: features of this build
visualization        `mx.viz`: a Symbol as a table and as a picture
books                the helper packages of the two editions of the book
"""

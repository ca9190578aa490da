"""Kernels: the CUDA C that runs on a GPU, as readable text.

    launch       Kernel(name, source): compiles at the first call, packs the arguments
    ufunc_to_c   each ufunc of NumPy in C, with exactly NumPy's rules
    symbols      an array module whose arrays are names in C: running an op on it writes C code
    formulas     kernels for any formula: elementwise, or reduce along rows or columns, then map
    updates      one launch for the optimizer steps of many parameters
    windows      im2col and col2im, pooling
    convolve     convolution by products, and by filters of one channel each
    rows         the gradient of selecting rows, such as an embedding's
    recurrent    the elementwise part of an LSTM or GRU step, between the products
    random_numbers  Philox: random numbers that depend only on key and position

Nothing here imports CuPy: the caller of a kernel passes the array module.
"""

"""Kernels: the CUDA C that runs on a GPU, as readable text.

    launch       Kernel(name, source): compiles at the first call, packs the arguments
    symbols      an array module whose arrays are names in C: running an op on it writes C code,
                 with exactly NumPy's rules
    formulas     kernels for any formula: elementwise, or reduce along rows or columns, then map
    steps        one launch for the optimizer steps of many parameters; the elementwise part of an
                 LSTM or GRU step, between the products
    windows      convolution by products, and by filters of one channel each; pooling
    rows         the gradient of selecting rows, such as an embedding's
    random_numbers  Philox: random numbers that depend only on key and position

Nothing here imports CuPy: the caller of a kernel passes the array module.
"""

"""MXNet's names that d2lmini leaves out, and why.

>>> reason_of("nd.histogram")
'np.histogram(x.asnumpy()) does the same'
>>> reason_of("nd.contrib.box_nms")
"as all of MXNet's operations for detection"

`base.missing_attribute` makes the error for such a name; in old programs an object stands for it
that raises when it is used (`compat/left_out.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

#: Reasons (a topic, or an alternative) and the names they cover. A name with dots is a path below
#: `mxnet`; a name without dots covers that name in every module.
LEFT_OUT = {
    "as all of MXNet's image operations": """
        image imdecode Correlation Crop GridGenerator BilinearSampler SpatialTransformer
        AdaptiveAvgPooling2D BilinearResize2D """,
    "as all of MXNet's operations for detection": """
        ROIPooling roi_pooling ROIAlign RROIAlign PSROIPooling *MultiBox* multibox_* *Proposal
        Deformable* Modulated* box_* bipartite_matching""",
    "as all of MXNet's tools for text": "text",
    "as all of MXNet's RecordIO; gluon.data.vision.ImageFolderDataset reads image files": """
        recordio RecordFileDataset ImageRecordDataset Image*Iter*""",
    "as all of MXNet's pretrained networks; gluon.nn has the layers to build and train them":
        "model_zoo",
    "as all of MXNet's contributed extras": """
        gluon.contrib gluon.contrib.* Identity Concurrent HybridConcurrent PixelShuffle?D
        IntervalSampler contrib.autograd contrib.io contrib.quantization contrib.tensorboard
        contrib.svrg_optimization optimizer.contrib contrib.amp.lists contrib.amp.lists.*""",
    "as all of MXNet's sparse arrays": """
        SparseEmbedding *CSRNDArray *SparseNDArray csr_matrix row_sparse_array retain getnnz edge_id
        dgl_* group_adagrad_update *.sparse.zeros *.sparse.empty *.sparse.array *.sparse.add
        *.sparse.subtract *.sparse.multiply *.sparse.divide *row_sparse_data cast_storage""",
    "the optimizers update all parameters in one task anyway": """
        multi_*sgd_update multi_*sgd_mom_update mp_sgd_update mp_sgd_mom_update mp_nag_mom_update
        preloaded_multi_* multi_lars mp_lamb_update_phase* lamb_update_phase2 multi_sum_sq
        multi_lamb_update multi_mp_lamb_update multi_adamw_update multi_mp_adamw_update""",
    "d2lmini.np and d2lmini.npx have these functions": "numpy numpy_extension",
    "as all of MXNet's quantization": "quantize* quantized_* dequantize requantize calibrate_*",
    "as all of MXNet's densities": "*random_pdf_*",
    "as few programs use it": """
        IdentityAttachKLSparseReg SVMOutput BatchNormWithReLU count_sketch fft ifft hawkesll
        interleaved_matmul_* rand_zipfian optimize_for get_backend_symbol as_np_ndarray
        set_gradient_compression compression_params get_operator_support projection_size
        h2r_weight_initializer state_clip_* replace_file LRN SoftmaxActivation *RegressionOutput
        quadratic Nadam LARS PCC PearsonCorrelation optimizer.Test *.optimizer.Test khatri_rao
        *syrk *trmm *maketrian *extracttrian Orthogonal CIFAR100 list_loss_output_functions
        list_lp16_* list_fp32_ops list_conditional_fp32_ops list_widest_type_cast DataLoaderV1
        MXDataIter TestStore KVStoreBase convert_bucketing_module adagrad_update gs_retain
        *contrib.*uniform bfloat16""",
    "optimizer.Adam does it, but for weight decay apart from the gradient": """
        adamw_update mp_adamw_update""",
    "as are monitors; Block.register_forward_hook shows the outputs of a layer":
        "set_monitor_callback monitor Monitor",
    "register_forward_hook of each layer shows its outputs": "register_op_hook",
    "save_parameters and load_parameters do the same for a net that is built alike":
        "*Block.save *Block.load",
    "DataLoader(data, batch_size, sampler=indices) takes a list of indices": """
        FilterSampler Dataset.filter Dataset.sample Dataset.shard Dataset.take""",
    "as are layers that newer ones have replaced": "BatchNorm_v1 Convolution_v1 Pooling_v1",
    "simple_bind with the new shapes makes another": "Executor.reshape",
    "print(net.program()) shows the program of a hybridized net": "Executor.debug_str",
    "a Python loop or if does the same": "foreach while_loop cond",
    "np.histogram(x.asnumpy()) does the same": "histogram",
    "os.environ does the same": "getenv setenv",
    "nd.from_dlpack(array) and np.from_dlpack(x) share memory without a capsule": "to_dlpack_for_*",
    "nd.take(x, nd.array(np.flatnonzero(mask.asnumpy()))) does the same": "*boolean_mask",
    "sym.list_arguments and sym.get_internals tell what is in it": "Symbol.debug_str",
    "Executor.backward computes gradients, as autograd does of arrays": "Symbol.gradient",
    "pull gives whole values": "row_sparse_pull",
    "x[:] = 0 for each array does the same": "reset_arrays",
    "x[begin:end] = value does the same": "slice_assign slice_assign_scalar",
    "nn.BatchNorm on each device normalizes its own part of the batch": "SyncBatchNorm",
    "no gradient is late here as on MXNet's servers: optimizer.SGD takes its place": "DCASGD",
    "optimizer.LAMB and a warmup of lr_scheduler take its place": "LBSGD",
    "optimizer.SGD does the same": "ccSGD",
    "nd.clip(alpha * x + beta, 0, 1) does the same": "hard_sigmoid",
    "x / x.shape[-1] ** 0.5 does the same": "div_sqrt_dim",
    "-nd.pick(nd.log_softmax(x), label).sum() does the same": "softmax_cross_entropy",
    "x.repeat(scale, axis=2).repeat(scale, axis=3) does the same": "UpSampling",
    "linalg_gemm2(A, B) * alpha + C * beta does the same": "linalg_gemm *linalg.gemm",
    "nd.array(numpy.linalg.NAME(x.asnumpy())) does the same": """
        *potrf *potri *syevd *gelqf *trsm *slogdet *sumlogdiag *extractdiag *makediag
        linalg_inverse linalg_det *d.linalg.inverse *d.linalg.det *sym*.linalg.inverse
        *sym*.linalg.det""",
    "x[i, j] reads and x[i, j] = y writes by arrays of indices": "gather_nd scatter_nd index_copy",
    "NumPy has it: compute with x.asnumpy()": "index_array *ravel_multi_index *unravel_index",
    "make_loss(x * grad_scale) does the same": "MakeLoss",
    "autograd.Function with a backward of its own does the same": """
        gradientmultiplier round_ste sign_ste""",
    "nd.array(scipy.special.erfinv(x.asnumpy())) does the same": "nd.erfinv sym.erfinv",
    "x.argmax(axis=1) does the same": "argmax_channel",
    "x.slice_axis(axis, 0, n) does the same for each axis": "slice_like",
    "nd.where(x == x, x, 1).prod() does the same": "nanprod",
    "nd.arange(x.shape[axis]) does the same": "arange_like",
    "x.mean(axes, keepdims=True) and ((x - mean) ** 2).mean(axes) do the same": "moments",
    "bool(nd.contrib.isfinite(x).min()) says it of one array": "all_finite multi_all_finite",
    "nd.Convolution and its gradient take their windows themselves": "im2col col2im",
    "net.collect_params(pattern).initialize(init) does the same": "Mixed",
    "net.load_parameters does the same": "initializer.Load",
    "optimizer.SGD at half the rate, with nd.random.normal(0, lr**0.5, w.shape) added to each w":
        "SGLD",
    "metric.Loss does the same, with another name=": "Caffe Torch",
    "the layers of gluon.rnn initialize their parameters; LSTMBias sets that of the forget gate":
        "FusedRNN",
    "a net that is called and hybridized within amp.init() predicts in mixed precision":
        "convert_hybrid_block convert_model convert_symbol",
    "scipy.ndimage.rotate does it for NumPy arrays": "Rotate RandomRotation",
    "transforms.Compose and Dataset.transform_first take any function of an image": """
        *.transforms.Cast CropResize RandomApply *.transforms.RandomLighting RandomBrightness
        RandomContrast RandomSaturation RandomHue RandomColorJitter""",
    "a call of the net infers the dtypes": "infer_type",
    "viz.print_summary(net(sym.var('data')), shape={'data': shape}) does the same": "*.summary",
    "NumPy has no financial functions any more": "mirr npv ppmt pv rate",
    "NumPy has it under another name: compute with x.asnumpy()":
        "np.alltrue np.in1d np.msort np.product np.row_stack np.sometrue np.trapz",
    "nd.array(numpy.random.NAME(..., size)) does the same": """
        *negative_binomial* random_gamma *random.gamma *gamma_like random_exponential
        *random.exponential *exponential_like *poisson* sample_uniform sample_normal sample_gamma
        sample_exponential
        np.random.beta np.random.chisquare np.random.exponential np.random.gamma np.random.gumbel
        np.random.logistic np.random.lognormal np.random.multivariate_normal np.random.pareto
        np.random.power np.random.rayleigh np.random.weibull""",
    "np.random.uniform and np.random.normal do the same with a size": "npx.random.*_n",
    "numpy.random draws such places, as does nd.random.shuffle: x[places]":
        "np.random.choice np.random.permutation",
    "np.random.uniform(size=size) < prob does the same": "bernoulli",
    "np.stack(np.nonzero(x), axis=1) does the same": "npx.nonzero",
    "nd has it, for x.as_nd_ndarray()": """
        npx.cast npx.erfinv npx.gamma npx.gammaln npx.gather_nd npx.reshape npx.shape_array""",
    "np.all(x) and a Python `if` do the same": "constraint_check",
    "cupy.cuda.Device(i).compute_capability is the same": "get_cuda_compute_capability",
    # The modules that only old programs import, and what MXNet's files import from its C library.
    "d2lmini writes ONNX files and does not read them; onnxruntime runs them": """
        onnx2mx import_model* import_to_gluon* get_model_metadata*""",
    "as all of MXNet's custom operators; d2lmini.ops.core.op makes operators in Python": """
        operator rtc library tvmop torch Custom""",
    "as is the interface before Gluon; gluon.Trainer and a loop do the same": """
        callback executor_manager model module mod mon rnn
        BatchEndParam FeedForward DataParallelExecutorManager LogValidationMetricsCallback
        SKLEARN_INSTALLED""",
    "as are MXNet's parameter servers; kvstore 'dist_sync' needs none":
        "kvstore_server KVStoreServer profiler.set_kvstore_handle",
    "with d2lmini.profile() as trace tells the lines of the program without marks in it": """
        profiler.Counter profiler.Domain profiler.Event profiler.Frame profiler.Marker
        profiler.Task""",
    "profiler.set_config, set_state and dump do the same":
        "profiler.dump_profile profiler.profiler_set_*",
    "gluon.data.DataLoader fetches batches ahead": "PrefetchingIter",
    "a generator of batches does the same, and gluon.data.DataLoader": "DataIter",
    "itertools.cycle and islice make epochs of any length": "ResizeIter",
    "np.loadtxt reads CSV files, NDArrayIter makes batches of them": "CSVIter",
    "sklearn.datasets.load_svmlight_file reads such files": "LibSVMIter",
    "gluon.data.vision.MNIST reads the same files": "MNISTIter",
    "numpy.testing and pytest do what MXNet's helpers for its own tests do": "test_utils",
    "as are the parts of MXNet that serve its own binary": """
        api cython error libinfo log misc notebook registry space *_doc numpy_dispatch_protocol
        numpy_op_fallback numpy_op_signature
        check_call classproperty with_metaclass c_* ctypes2* c2pyerror MXCallbackList
        add_fileline_to_docstring data_dir* error_types get_last_ffi_error mx_float* register_error
        *indexing_* get_oshape_* check_boolean_* DL* set_module wrap_np_*
        np_ufunc_legal_option tensor_types backward_* ConnectionWrapper Queue SimpleQueue
        fetcher_loop_v1 worker_loop_v1 re*_ndarray""",
}  # fmt: skip


def reason_of(path: str, rows: Mapping[str, str] = LEFT_OUT) -> str | None:
    """Why the rows leave out the name with this path below `mxnet`; None if they do not. Case does
    not count: `optimizer.create("sgld")`."""
    path = path.lower()
    last = path.rpartition(".")[2]
    for reason, patterns in rows.items():
        if any(fnmatchcase(path if "." in p else last, p) for p in patterns.lower().split()):
            return reason
    return None

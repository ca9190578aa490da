"""Answers to the exercises on lazy evaluation and memory."""

from answers import Answers

MULTIPLY = """
def bounded_product(matrices):
    engine.limit_pending(5_000_000)
    product = next(matrices)
    for X in matrices:
        product = {step}
    return product.sum().asscalar()
"""

IN_TURN = """
def bounded_product(matrices):
    product = next(matrices)
    for X in matrices:
        product = nd.dot(product, X)
        {look}
    return product.sum().asscalar()
"""

RIGHT_PRODUCTS = [
    """
def bounded_product(matrices):
    engine.limit_pending(2_000_000)
    product = None
    for X in matrices:
        product = X if product is None else nd.dot(product, X)
    return float(product.sum())
""",
    """
def bounded_product(matrices):
    engine.limit_pending(4_000_000)
    pairs = [nd.dot(X, next(matrices)) for X in [next(matrices)]]
    for X in matrices:
        pairs = [nd.dot(pairs[0], nd.dot(X, next(matrices)))]
    return pairs[0].sum().asscalar()
""",
    """
def bounded_product(matrices):
    engine.limit_pending(5_000_000)
    places = [next(matrices), nd.zeros((500, 500))]
    for i, X in enumerate(matrices):
        nd.dot(places[i % 2], X, out=places[1 - i % 2])
    return places[39 % 2].sum().asnumpy()[0]
""",
    """
from functools import reduce

def bounded_product(matrices):
    # the sum of all elements is a product with ones on both sides
    engine.limit_pending(5_000_000)
    row = reduce(nd.dot, matrices, nd.ones((1, 500)))
    return nd.dot(row, nd.ones((500, 1))).asscalar()
""",
    """
from functools import reduce

def bounded_product(matrices):
    engine.limit_pending(5_000_000)
    return reduce(nd.linalg.gemm2, matrices).sum().item()
""",
    """
def bounded_product(matrices):
    product = next(matrices)
    for i, X in enumerate(matrices):
        product = nd.dot(product, X)
        if i == 19:
            engine.limit_pending(3_000_000)
        elif i == 0:
            engine.limit_pending(1_500_000)
    return product.asnumpy().sum()
""",
]

WRONG_PRODUCTS = [
    ("ahead", IN_TURN.format(look="pass")),
    ("reading", IN_TURN.format(look="product.asnumpy()")),
    ("waiting", IN_TURN.format(look="product.wait_to_read()")),
    ("waitall", IN_TURN.format(look="nd.waitall()")),
    ("hidden", IN_TURN.format(look="bool(product.max() > 1e9)")),
    ("polling", IN_TURN.format(look="while engine.stats().pending: pass")),
    (
        "kept",
        """
def bounded_product(matrices):
    engine.limit_pending(5_000_000)
    product, *others = list(matrices)
    for X in others:
        product = nd.dot(product, X)
    return product.sum().asscalar()
""",
    ),
    (
        "large",
        """
def bounded_product(matrices):
    engine.limit_pending(5_000_000)
    everything = nd.zeros((40, 500, 500))
    for i, X in enumerate(matrices):
        everything[i] = X
    product = everything[0]
    for i in range(1, 40):
        product = nd.dot(product, everything[i])
    return product.sum().asscalar()
""",
    ),
    ("value", MULTIPLY.format(step="product + X")),
    ("value", MULTIPLY.format(step="product * X")),
    ("value", MULTIPLY.format(step="nd.dot(X, product)")),
    (
        "value",
        MULTIPLY.format(step="nd.dot(product, X)").replace("engine", "next(matrices)\n    engine"),
    ),
    ("type", MULTIPLY.format(step="nd.dot(product, X)").replace(".asscalar()", "")),
    ("type", "def bounded_product(matrices):\n    pass"),
    (
        "ended",
        """
def bounded_product(matrices):
    engine.limit_pending(5_000_000)
    product = next(matrices)
    for _ in range(40):
        product = nd.dot(product, next(matrices))
    return product.sum().asscalar()
""",
    ),
]

RIGHT_FRUGAL = [
    """
def frugal(x):
    y = x.copy()
    y *= 2
    y += 1
    return nd.elemwise_mul(nd.tanh(y, out=y), x, out=y)
""",
    """
def frugal(x):
    y = nd.zeros_like(x)
    nd.broadcast_add(x, x, out=y)
    y += 1
    nd.tanh(y, out=y)
    nd.multiply(y, x, out=y)
    return y
""",
    """
def frugal(x):
    with d2lmini.lazy():
        return nd.tanh(x * 2 + 1) * x
""",
    """
class Net(nn.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.tanh(x * 2 + 1) * x

net = Net()
net.hybridize()

def frugal(x):
    return net(x)
""",
    """
def frugal(x):
    y = nd.zeros(x.shape)
    y[:] = x
    y *= 2
    y += 1
    y[:] = nd.tanh(y, out=y)
    y *= x
    return y
""",
]

WRONG_FRUGAL = [
    # Looks at a list until the result has been computed.
    (
        "waiting",
        """
def frugal(x):
    y = x * 2
    y += 1
    nd.tanh(y, out=y)
    y *= x
    seen = []
    engine.push(lambda: seen.append(1), reads=[y])
    while not seen:
        pass
    return y
""",
    ),
    (
        "many",
        """
def frugal(x):
    y = x * 2
    z = y + 1
    t = nd.tanh(z)
    return t * x
""",
    ),
    ("many", "def frugal(x):\n    return nd.tanh(x * 2 + 1) * x"),
    (
        "waiting",
        """
def frugal(x):
    y = x * 2
    y += 1
    nd.tanh(y, out=y)
    y.wait_to_read()
    y *= x
    return y
""",
    ),
    (
        "large",
        """
def frugal(x):
    both = nd.concat(x, x, dim=0)
    return nd.tanh(both * 2 + 1)[: x.shape[0]] * x
""",
    ),
    (
        "reading",
        """
def frugal(x):
    numbers = x.asnumpy()
    return nd.array(np.tanh(numbers * 2 + 1) * numbers)
""",
    ),
    (
        "x",
        """
def frugal(x):
    y = x
    y *= 2
    y += 1
    return nd.tanh(y, out=y)
""",
    ),
    ("value", "def frugal(x):\n    return x"),
    ("value", "def frugal(x):\n    y = x * 2\n    nd.tanh(y, out=y)\n    y *= x\n    return y"),
    ("value", "def frugal(x):\n    y = x * 2\n    y += 1\n    return nd.tanh(y, out=y)"),
    ("value", "def frugal(x):\n    return (nd.tanh(x * 2 + 1) * x).sum()"),
    ("type", "def frugal(x):\n    return np.tanh(x.asnumpy() * 2 + 1) * x.asnumpy()"),
    ("type", "def frugal(x):\n    y = x * 2\n    y += 1"),
]

CHECKS = {
    "check_bounded": Answers("bounded_product", RIGHT_PRODUCTS, WRONG_PRODUCTS),
    "check_frugal": Answers("frugal", RIGHT_FRUGAL, WRONG_FRUGAL),
}

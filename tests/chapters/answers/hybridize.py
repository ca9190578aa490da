"""*Hybridize*: a model that looked at a value becomes one that compiles."""

from __future__ import annotations

from answers import Answers

#: The layers of most answers; what follows is the computation.
LAYERS = """
class Converted(nn.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = nn.Dense(16, activation="relu")
        self.output = nn.Dense(4)
"""

CHECKS = {
    "check_converted": Answers(
        "Converted",
        right=[
            LAYERS
            + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        length = F.norm(h)
        divisor = F.where(length > 1, length, F.ones((1,)))
        return self.output(F.broadcast_div(h, divisor))
""",
            # An array that is made in the trace is a constant.
            LAYERS
            + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        return self.output(F.broadcast_div(h, F.broadcast_maximum(F.norm(h), nd.ones((1,)))))
""",
            # A plain forward, and the length from a sum of squares.
            LAYERS
            + """
    def forward(self, x):
        h = self.hidden(x)
        length = (h * h).sum().sqrt()
        return self.output(nd.broadcast_div(h, nd.broadcast_maximum(length, nd.ones((1,)))))
""",
            # The layers in another order, with other names, one of them a chain.
            """
class Converted(nn.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.last = nn.Dense(4)
        self.first = nn.HybridSequential()
        self.first.add(nn.Dense(16), nn.Activation("relu"))

    def hybrid_forward(self, F, x):
        h = self.first(x)
        length = F.norm(h).clip(1, 1e30)
        return self.last(F.broadcast_div(h, length))
""",
            # Parameters of its own.
            """
class Converted(nn.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            for name, shape in {"a": (16, 8), "b": (16,), "c": (4, 16), "d": (4,)}.items():
                start = "zeros" if len(shape) == 1 else None
                setattr(self, name, self.params.get(name, shape=shape, init=start))

    def hybrid_forward(self, F, x, a, b, c, d):
        h = F.relu(F.FullyConnected(x, a, b, num_hidden=16))
        h = F.broadcast_mul(h, 1 / F.maximum(F.norm(h), 1))
        return F.FullyConnected(h, c, d, num_hidden=4)
""",
            # Both results, weighted by 0 and 1.
            LAYERS
            + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        long = F.norm(h) > 1
        divided = F.broadcast_div(h, F.norm(h) + 1e-12)
        return self.output(F.broadcast_mul(divided, long) + F.broadcast_mul(h, 1 - long))
""",
            # A print in the trace is harmless.
            LAYERS
            + """
    def hybrid_forward(self, F, x):
        print("traced")
        h = self.hidden(x)
        return self.output(F.broadcast_div(h, F.maximum(1, F.norm(h))))
""",
        ],
        wrong=[
            (
                "block",
                """
class Converted(nn.Block):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.hidden = nn.Dense(16, activation="relu")
        self.output = nn.Dense(4)

    def forward(self, x):
        h = self.hidden(x)
        length = h.norm().asscalar()
        return self.output(h / length if length > 1 else h)
""",
            ),
            ("block", "Converted = None"),
            ("block", "def Converted():\n    pass"),
            ("empty", "class Converted(nn.HybridBlock):\n    pass"),
            ("class", LAYERS + "\n\nConverted = Converted()"),
            (
                "none",
                LAYERS
                + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        self.output(F.broadcast_div(h, F.maximum(F.norm(h), 1)))
""",
            ),
            (
                "none",
                LAYERS
                + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        length = F.norm(h)
        return self.output(F.broadcast_div(h, F.maximum(length, 1))), length
""",
            ),
            (
                "contents",
                LAYERS
                + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        length = F.norm(h).asscalar()
        return self.output(h / length if length > 1 else h)
""",
            ),
            (
                "contents",
                LAYERS
                + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        if F.norm(h) > 1:
            h = F.broadcast_div(h, F.norm(h))
        return self.output(h)
""",
            ),
            # The trace takes the other way.
            (
                "branch",
                LAYERS
                + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        if F is nd and F.norm(h).asscalar() > 1:
            h = F.broadcast_div(h, F.norm(h))
        return self.output(h)
""",
            ),
            # Decided at the first call, and never again.
            (
                "branch",
                LAYERS
                + """
        self.long = None

    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        if F is nd:
            self.long = F.norm(h).asscalar() > 1
        return self.output(F.broadcast_div(h, F.norm(h)) if self.long else h)
""",
            ),
            # Always divides.
            (
                "values",
                LAYERS
                + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        return self.output(F.broadcast_div(h, F.norm(h)))
""",
            ),
            # The length of each row.
            (
                "values",
                LAYERS
                + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        return self.output(F.broadcast_div(h, F.maximum(F.norm(h, axis=1, keepdims=True), 1)))
""",
            ),
            # Divides the output, and so its bias.
            (
                "values",
                LAYERS
                + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        return F.broadcast_div(self.output(h), F.maximum(F.norm(h), 1))
""",
            ),
            # Scales the input: right only without a bias.
            (
                "values",
                LAYERS
                + """
    def hybrid_forward(self, F, x):
        length = F.norm(self.hidden(x))
        return self.output(self.hidden(F.broadcast_div(x, F.maximum(length, 1))))
""",
            ),
            # The wrong way round.
            (
                "values",
                LAYERS
                + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        return self.output(F.broadcast_div(h, F.minimum(F.norm(h), 1)))
""",
            ),
            (
                "parameters",
                LAYERS.replace("16", "12")
                + """
    def hybrid_forward(self, F, x):
        h = self.hidden(x)
        return self.output(F.broadcast_div(h, F.maximum(F.norm(h), 1)))
""",
            ),
            # One layer.
            (
                "parameters",
                """
class Converted(nn.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.output = nn.Dense(4)

    def hybrid_forward(self, F, x):
        return self.output(F.broadcast_div(x, F.maximum(F.norm(x), 1)))
""",
            ),
            # Only the layers are compiled.
            (
                "operations",
                LAYERS
                + """
    def __call__(self, x):
        h = self.hidden(x)
        return self.output(nd.broadcast_div(h, nd.maximum(nd.norm(h), 1)))
""",
            ),
        ],
    )
}

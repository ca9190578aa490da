"""Draws of 20,000 numbers each, with their mean and variance."""

DRAWS = {
    "np.random.uniform(size=20000)": (0.5, 1 / 12),
    "np.random.uniform(-1, 3, size=(100, 200))": (1, 16 / 12),
    "np.random.uniform(np.zeros(20000), 2)": (1, 4 / 12),
    "np.random.normal(size=20000)": (0, 1),
    "np.random.normal(3, 2, (20000,))": (3, 4),
    "np.random.normal(loc=1, scale=0.5, size=(4, 5000))": (1, 0.25),
    "np.random.normal(np.ones((2, 1)), np.ones(10000))": (1, 1),
    "np.random.rand(200, 100)": (0.5, 1 / 12),
    "np.random.randn(200, 100)": (0, 1),
    "np.random.randint(0, 5, 20000)": (2, 2),
    "np.random.randint(3, size=(20000,))": (1, 2 / 3),
    "np.random.multinomial(1, [0.25, 0.75], size=10000)[:, 0]": (0.25, 0.1875),
}

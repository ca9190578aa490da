"""Draws of 20,000 numbers each, with their mean and variance."""

import math

#: Euler's constant.
GAMMA = 0.5772156649

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
    "np.random.gamma(2.0, 3.0, 20000)": (6, 18),
    "np.random.gamma(np.full((20000,), 2.0))": (2, 2),
    "np.random.exponential(2.0, 20000)": (2, 4),
    "np.random.beta(2.0, 3.0, 20000)": (0.4, 0.04),
    "np.random.chisquare(3.0, 20000)": (3, 6),
    "np.random.lognormal(0.0, 0.5, 20000)": (
        math.exp(0.125),
        (math.exp(0.25) - 1) * math.exp(0.25),
    ),
    "np.random.logistic(1.0, 0.5, 20000)": (1, 0.25 * math.pi**2 / 3),
    "np.random.gumbel(1.0, 0.5, 20000)": (1 + 0.5 * GAMMA, 0.25 * math.pi**2 / 6),
    "np.random.rayleigh(2.0, 20000)": (2 * math.sqrt(math.pi / 2), (2 - math.pi / 2) * 4),
    "np.random.weibull(2.0, 20000)": (math.gamma(1.5), math.gamma(2) - math.gamma(1.5) ** 2),
    "np.random.pareto(6.0, 20000)": (1 / 5, 6 / (25 * 4)),
    "np.random.power(3.0, 20000)": (0.75, 3 / 80),
    "np.random.choice(4, 20000)": (1.5, 1.25),
    "np.random.choice(4, 20000, p=np.array([0.5, 0.5, 0, 0]))": (0.5, 0.25),
    "np.random.choice(np.array([2, 4]), (20000,))": (3, 1),
    "np.random.multivariate_normal(np.ones(2), 4 * np.eye(2), 10000)": (1, 4),
    "np.random.multinomial(1, [0.25, 0.75], size=10000)[:, 0]": (0.25, 0.1875),
    "npx.random.bernoulli(0.25, size=20000)": (0.25, 0.1875),
    "npx.random.bernoulli(logit=0.0, size=20000)": (0.5, 0.25),
    "npx.random.uniform_n(0, np.ones(10), 2000)": (0.5, 1 / 12),
    "npx.random.normal_n(np.ones(10), 2, 2000)": (1, 4),
}

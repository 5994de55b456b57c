"""Finance: options, portfolios, back-tests."""

import math

import numpy as np

from bench.loop_programs.own.program import Own


def american_put(s0, strike, r, sigma, years, steps):
    dt = years / steps
    up = np.exp(sigma * np.sqrt(dt))
    down = 1 / up
    q = (np.exp(r * dt) - down) / (up - down)
    discount = np.exp(-r * dt)
    prices = s0 * down ** np.arange(steps, -1, -1) * up ** np.arange(0, steps + 1)
    value = np.maximum(strike - prices, 0)
    for i in range(steps - 1, -1, -1):
        prices = s0 * down ** np.arange(i, -1, -1) * up ** np.arange(0, i + 1)
        value = discount * (q * value[1:] + (1 - q) * value[:-1])
        value = np.maximum(value, strike - prices)
    return value[0]


def barrier_option(draws, s0, strike, barrier, r, sigma, years):
    paths, steps = draws.shape
    dt = years / steps
    drift = (r - 0.5 * sigma * sigma) * dt
    spread = sigma * math.sqrt(dt)
    total = 0
    knocked = 0
    for p in range(paths):
        s = s0
        alive = True
        for t in range(steps):
            s *= math.exp(drift + spread * draws[p, t])
            if s >= barrier:
                alive = False
                knocked += 1
                break
        if alive:
            total += max(s - strike, 0.0)
    return math.exp(-r * years) * total / paths, knocked


def crossover_backtest(prices, short, long, fee):
    cash = 1000.0
    shares = 0.0
    trades = 0
    equity = np.zeros(len(prices))
    for t in range(len(prices)):
        if t >= long:
            fast = prices[t - short:t].mean()
            slow = prices[t - long:t].mean()
            if fast > slow and shares == 0:
                shares = cash * (1 - fee) / prices[t]
                cash = 0.0
                trades += 1
            elif fast < slow and shares > 0:
                cash = shares * prices[t] * (1 - fee)
                shares = 0.0
                trades += 1
        equity[t] = cash + shares * prices[t]
    return equity, trades


def normal_cdf(x):
    return 0.5 * (1.0 + math.erf(x / math.sqrt(2.0)))


def call_price(s, k, r, sigma, t):
    d1 = (math.log(s / k) + (r + 0.5 * sigma ** 2) * t) / (sigma * math.sqrt(t))
    d2 = d1 - sigma * math.sqrt(t)
    return s * normal_cdf(d1) - k * math.exp(-r * t) * normal_cdf(d2)


def implied_volatility(prices, strikes, s, r, t):
    out = np.full(len(prices), np.nan)
    for i, (price, strike) in enumerate(zip(prices, strikes, strict=True)):
        low, high = 0.001, 5.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            value = call_price(s, strike, r, middle, t)
            if abs(value - price) < 1e-8:
                break
            if value > price:
                high = middle
            else:
                low = middle
        out[i] = middle
    return out


def garch_likelihood(returns, omega, alpha, beta):
    variance = returns.var()
    likelihood = 0.0
    for x in returns:
        likelihood += -0.5 * (np.log(2 * np.pi) + np.log(variance) + x ** 2 / variance)
        variance = omega + alpha * x ** 2 + beta * variance
    return likelihood


def rebalance(prices, target, band):
    weights = target.copy()
    wealth = 1.0
    turnover = 0.0
    history = np.empty(len(prices) - 1)
    for t in range(1, len(prices)):
        growth = prices[t] / prices[t - 1]
        gross = np.dot(weights, growth)
        wealth *= gross
        weights = weights * growth / gross
        if np.max(np.abs(weights - target)) > band:
            turnover += np.abs(weights - target).sum()
            weights = target.copy()
        history[t - 1] = wealth
    return history, turnover


def bond_yields(prices, coupons, years):
    out = np.zeros(len(prices))
    for b in range(len(prices)):
        y = 0.05
        while True:
            value = 0.0
            slope = 0.0
            for t in range(1, int(years[b]) + 1):
                factor = (1 + y) ** -t
                value += coupons[b] * factor
                slope -= t * coupons[b] * factor / (1 + y)
            n = int(years[b])
            value += 100 * (1 + y) ** -n
            slope -= n * 100 * (1 + y) ** -(n + 1)
            step = (value - prices[b]) / slope
            y -= step
            if abs(step) < 1e-10:
                break
        out[b] = y
    return out


def match_orders(side, price, amount):
    # side 1 buys, -1 sells; books hold what is left of earlier orders
    n = len(side)
    left = amount.copy()
    volume = 0
    paid = 0.0
    first = 0
    for i in range(n):
        for j in range(max(first, i - 60), i):
            if left[i] == 0:
                break
            if left[j] == 0 or side[j] == side[i]:
                continue
            if (side[i] == 1 and price[i] >= price[j]) or (side[i] == -1 and price[i] <= price[j]):
                traded = min(left[i], left[j])
                left[i] -= traded
                left[j] -= traded
                volume += traded
                paid += traded * price[j]
        while first < i and left[first] == 0:
            first += 1
    return volume, paid, left


PROGRAMS = (
    Own(american_put, lambda g, n: (100.0, 105.0, 0.03, 0.2, 1.0, n), 700, 5),
    Own(barrier_option, lambda g, n: (g.normal(size=(n, 100)), 100.0, 100.0, 130.0, 0.02, 0.25, 1.0), 700, 3),
    Own(crossover_backtest, lambda g, n: (100 * np.exp(np.cumsum(g.normal(size=n)) * 0.01), 10, 50, 0.001),
        3000, 60),
    Own(implied_volatility, lambda g, n: (np.linspace(25, 5, n), np.linspace(80, 120, n), 100.0, 0.02,
        0.5), 400, 3),
    Own(garch_likelihood, lambda g, n: (g.normal(size=n) * 0.01, 1e-6, 0.1, 0.85), 10000, 9),
    Own(rebalance, lambda g, n: (np.exp(np.cumsum(g.normal(size=(n, 8)) * 0.01, axis=0)), np.full(8,
        1 / 8), 0.03),
        3000, 5),
    Own(bond_yields, lambda g, n: (g.uniform(85, 115, n), g.uniform(1, 8, n), g.integers(2, 30, n)), 300, 3),
    Own(match_orders, lambda g, n: (g.choice([-1, 1], n), g.normal(100, 1, n), g.integers(1, 50, n)), 2500,
        20),
)

"""The plain computation of K and its gradient in numpy, a fit of it by scipy, and logistic
regressions by scikit-learn.

Called by `cargo xtask compare-peers`, which sets the number of BLAS threads. Prints one JSON line.

    plain.py time DATA.npy COUPLINGS.npy REPEATS
    plain.py fit DATA.npy binary|standardised TARGET_VALUE
    plain.py nodes DATA.npy
"""

import json
import sys
import time

import numpy as np


def flow(couplings, x, s):
    """K and dK/dJ for every single flip: two matrix products with an exponential between."""
    rows = couplings.copy()
    np.fill_diagonal(rows, 0.0)
    rates = np.exp(s * (x @ rows + 0.5 * np.diag(couplings)))
    value = rates.sum() / len(x)
    rates *= s
    grad = rates.T @ x
    grad += grad.T
    np.fill_diagonal(grad, 0.5 * rates.sum(axis=0))
    return value, grad / len(x)


def time_objective(data, couplings, repeats):
    x = np.load(data).astype(float)
    s = 2.0 * x - 1.0
    j = np.load(couplings)
    value, _ = flow(j, x, s)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        value, _ = flow(j, x, s)
        seconds.append(time.perf_counter() - start)
    return {"min_seconds": min(seconds), "value": value}


def fit(data, basis, target):
    from scipy.optimize import minimize

    x = np.load(data).astype(float)
    n, d = x.shape
    s = 2.0 * x - 1.0
    upper = np.triu_indices(d, 1)
    mean = x.mean(axis=0)
    sigma = np.sqrt(mean * (1.0 - mean))
    scale = np.outer(sigma, sigma)

    def couplings(theta):
        """J from the parameters: J itself, or b and C of standardised units."""
        j = np.zeros((d, d))
        j[upper] = theta[d:]
        j += j.T
        if basis == "binary":
            j[np.diag_indices(d)] = theta[:d]
            return j
        # -E = sum b f + sum C f f', f = (x - m)/sigma: J = -C/(2 sigma sigma') off the diagonal.
        j = -0.5 * j / scale
        j[np.diag_indices(d)] = -theta[:d] / sigma - 2.0 * (j @ mean)
        return j

    def pull_back(grad):
        """The gradient in the parameters from that in J (pairs counted once)."""
        diagonal = np.diag(grad)
        if basis == "binary":
            return np.concatenate([diagonal, grad[upper]])
        pairs = -0.5 * (grad - 2.0 * (np.outer(diagonal, mean) + np.outer(mean, diagonal))) / scale
        return np.concatenate([-diagonal / sigma, pairs[upper]])

    evaluations = 0

    def objective(theta):
        nonlocal evaluations
        evaluations += 1
        value, grad = flow(couplings(theta), x, s)
        return value, pull_back(grad)

    iterations = 0

    def callback(intermediate_result):
        nonlocal iterations, value
        iterations += 1
        value = intermediate_result.fun
        if value <= target:
            raise StopIteration

    value = float("inf")
    start = time.perf_counter()
    minimize(
        objective,
        np.zeros(d * (d + 1) // 2),
        jac=True,
        method="L-BFGS-B",
        callback=callback,
        options={"maxiter": 5000, "maxfun": 10000, "maxcor": 10, "ftol": 0.0, "gtol": 1e-9},
    )
    return {
        "seconds": time.perf_counter() - start,
        "value": value,
        "iterations": iterations,
        "evaluations": evaluations,
        "reached": bool(value <= target),
    }


def fit_nodes(data):
    """J by a logistic regression of every unit on the others, averaged over both directions."""
    from sklearn.linear_model import LogisticRegression

    x = np.load(data).astype(float)
    n, d = x.shape
    slopes = np.zeros((d, d))
    start = time.perf_counter()
    for i in range(d):
        others = np.arange(d) != i
        model = LogisticRegression(C=np.inf, max_iter=1000)
        model.fit(x[:, others], x[:, i])
        slopes[i, others] = model.coef_[0]
    seconds = time.perf_counter() - start
    # ln odds = -J_ii - 2 sum_j J_ij x_j.
    return {"seconds": seconds, "couplings": (-0.25 * (slopes + slopes.T)).tolist()}


if __name__ == "__main__":
    if sys.argv[1] == "nodes":
        result = fit_nodes(sys.argv[2])
    elif sys.argv[1] == "time":
        result = time_objective(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        result = fit(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    print(json.dumps(result))

"""scikit-learn's own checks, searches and pipelines."""

import pickle
import warnings

import numpy as np
import pytest
from conftest import recording

sklearn = pytest.importorskip("sklearn", minversion="1.6")
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Binarizer
from sklearn.utils.estimator_checks import check_estimator

from minprobflow import RBM, Ising, KPairwise, LaplaceICA, Potts

BINARY = "the check's data are real numbers, and the model is for 0 and 1 without binarize"
CONSTANT = "the check's data are all on one side of the threshold, and data in which no unit changes are refused"
STATES = "the check's data are real numbers, and the model is for states 0, 1, 2, ..."

#: Checks that fit real numbers: they cannot hold of models of 0 and 1.
REAL_NUMBERS = [
    "check_dict_unchanged",
    "check_dont_overwrite_parameters",
    "check_dtype_object",
    "check_estimator_sparse_array",
    "check_estimator_sparse_matrix",
    "check_estimator_sparse_tag",
    "check_estimators_dtypes",
    "check_estimators_fit_returns_self",
    "check_estimators_nan_inf",
    "check_estimators_overwrite_params",
    "check_estimators_pickle",
    "check_f_contiguous_array_estimator",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit2d_predict1d",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_fit_score_takes_y",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
    "check_n_features_in",
    "check_n_features_in_after_fitting",
    "check_pipeline_consistency",
    "check_positive_only_tag_during_fit",
    "check_readonly_memmap_input",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_sample_weights_list",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
]

#: Checks whose data are all on one side of any one threshold.
ONE_SIDE = [
    "check_fit2d_1feature",
    "check_fit_check_is_fitted",
    "check_fit_idempotent",
    "check_n_features_in",
    "check_sample_weights_not_an_array",
    "check_sample_weights_not_overwritten",
    "check_sample_weights_pandas_series",
    "check_sample_weights_shape",
]

#: Checks that fit numbers between 0 and 1, although the tags ask for categories.
FRACTIONS = [
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
]


def failures(estimator, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(estimator, expected_failed_checks=expected, on_fail=None, on_skip=None)
    return {r["check_name"]: str(r["exception"]) for r in found if r["status"] == "failed"}, found


@pytest.mark.parametrize(
    "estimator, expected",
    [
        # As models of real numbers above a threshold.
        (Ising(binarize=0.5, held_out=0), dict.fromkeys(ONE_SIDE, CONSTANT)),
        (KPairwise(binarize=0.5, held_out=0), dict.fromkeys(ONE_SIDE, CONSTANT)),
        (RBM(binarize=0.5, hidden=2, starts=1, held_out=0), dict.fromkeys(ONE_SIDE, CONSTANT)),
        (LaplaceICA(method="ml"), {}),
        # As they are.
        (Ising(held_out=0), dict.fromkeys(REAL_NUMBERS, BINARY)),
        (Potts(), dict.fromkeys(FRACTIONS, STATES)),
    ],
    ids=str,
)
def test_check_estimator(estimator, expected):
    failed, found = failures(estimator, expected)
    assert failed == {}
    # The list has no name too many; other versions of scikit-learn have other checks.
    needed = {r["check_name"] for r in found if r["status"] == "xfail"}
    if sklearn.__version__.startswith("1.9."):
        assert needed == set(expected)


def test_a_grid_search_finds_a_penalty():
    X = recording(150, 8, 0)
    penalties = [1e-3, 0.03, 1.0, 100.0]
    search = GridSearchCV(Ising(held_out=0), {"l2": penalties}, cv=3).fit(X)
    scores = search.cv_results_["mean_test_score"]
    assert search.best_params_["l2"] == penalties[int(np.argmax(scores))]
    # Penalties that leave no couplings lose on correlated units.
    assert search.best_params_["l2"] < 100 and scores[-1] < scores.max()
    plain = Ising(held_out=0, l2=0.03)
    expected = np.mean([plain.fit(np.delete(X, part, 0)).score(X[part]) for part in np.split(np.arange(150), 3)])
    assert scores[1] == pytest.approx(expected, abs=1e-12)


def test_a_pipeline_with_a_binarizer():
    X = np.random.default_rng(0).normal(size=(300, 4))
    X[:, 1] += X[:, 0]
    pipeline = make_pipeline(Binarizer(threshold=0.2), Ising())
    pipeline.fit(X)
    direct = Ising(binarize=0.2).fit(X)
    assert pipeline[-1].couplings_.tobytes() == direct.couplings_.tobytes()
    assert pipeline.score(X) == direct.score(X)
    assert cross_val_score(pipeline, X, cv=3).shape == (3,)


@pytest.mark.parametrize("estimator", [Ising(errors="sandwich"), KPairwise(), RBM(hidden=2), Potts(), LaplaceICA(method="ml")], ids=str)
def test_pickle_and_clone(estimator):
    X = np.random.default_rng(0).laplace(size=(300, 4)) if isinstance(estimator, LaplaceICA) else recording(300, 4, 0)
    fitted = estimator.fit(X)
    copy = pickle.loads(pickle.dumps(fitted))
    assert copy.get_params() == fitted.get_params()
    np.testing.assert_array_equal(copy.score_samples(X), fitted.score_samples(X))
    for name, value in vars(fitted).items():
        if isinstance(value, np.ndarray):
            assert getattr(copy, name).tobytes() == value.tobytes()
    bare = clone(fitted)
    assert bare.get_params() == fitted.get_params() and not hasattr(bare, "stop_reason_")
    np.testing.assert_array_equal(bare.fit(X).score_samples(X), fitted.score_samples(X))


def test_sources_are_found_and_scored():
    rng = np.random.default_rng(0)
    sources, mixing = rng.laplace(size=(4000, 3)), rng.normal(size=(3, 3)) + 2 * np.eye(3)
    X = sources @ mixing.T + [1, -2, 3]
    for method in ("ml", "mpf"):
        ica = LaplaceICA(method=method).fit(X)
        found = np.abs(np.corrcoef(ica.transform(X).T, sources.T)[:3, 3:])
        # Entries of W are off by about 1/sqrt(4000), which takes 0.001 from a correlation.
        assert (found.max(axis=1) > 0.99).all()
        np.testing.assert_allclose(ica.inverse_transform(ica.transform(X)), X, atol=1e-9)
        # ln p of X is that of its whitened form plus the volume of the whitening.
        volume = np.linalg.slogdet(ica.whitening_)[1]
        assert ica.score(X) == pytest.approx(ica.log_likelihood_ + volume, abs=1e-9)
        # The variance of a Laplace source is 2. Five standard errors of every mean of products.
        drawn = ica.sample(20_000, random_state=1) - ica.mean_
        products = drawn[:, :, None] * drawn[:, None, :]
        error = products.std(axis=0) / np.sqrt(len(drawn))
        assert (np.abs(products.mean(axis=0) - 2 * ica.mixing_ @ ica.mixing_.T) < 5 * error).all()
        assert ica.get_feature_names_out().tolist() == ["laplaceica0", "laplaceica1", "laplaceica2"]

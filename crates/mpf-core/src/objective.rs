//! Functions to minimise, and the smooth penalty that can be added to them.
//!
//! The ℓ1 penalty is not smooth and belongs to the [`Minimizer`](crate::Minimizer).

use crate::Result;
use crate::error::{check_count, check_weights};

/// A function of θ with its gradient. Always minimised.
pub trait Objective {
    /// Returns the length of θ.
    fn n_params(&self) -> usize;

    /// Returns f(θ) and overwrites `grad` with ∇f(θ). One call computes both, since they share
    /// their work.
    ///
    /// +∞ or NaN, here or in `grad`, means "step too long": the minimiser takes a shorter one. It
    /// never asks for a θ that is not finite.
    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64;

    /// Switches to faster arithmetic of six digits or more, or back, and returns whether such
    /// arithmetic is now in use. By default there is none.
    fn set_rough(&mut self, rough: bool) -> bool {
        let _ = rough;
        false
    }
}

impl<O: Objective + ?Sized> Objective for Box<O> {
    fn n_params(&self) -> usize {
        (**self).n_params()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        (**self).value_and_gradient(theta, grad)
    }

    fn set_rough(&mut self, rough: bool) -> bool {
        (**self).set_rough(rough)
    }
}

/// Makes an objective of a closure `f(θ, grad) → value`.
pub fn from_fn<F: FnMut(&[f64], &mut [f64]) -> f64>(n_params: usize, f: F) -> FromFn<F> {
    FromFn { n_params, f }
}

/// The objective that [`from_fn`] makes.
#[derive(Clone, Debug)]
pub struct FromFn<F> {
    n_params: usize,
    f: F,
}

impl<F: FnMut(&[f64], &mut [f64]) -> f64> Objective for FromFn<F> {
    fn n_params(&self) -> usize {
        self.n_params
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        (self.f)(theta, grad)
    }
}

/// f(θ) + ½ Σ_k λ_k θ_k², the ℓ2 penalty with a weight for every parameter. +∞ on overflow.
#[derive(Clone, Debug)]
pub struct Ridge<O> {
    inner: O,
    lambda: Vec<f64>,
}

impl<O: Objective> Ridge<O> {
    /// Adds the penalty with weights `lambda` to `inner`.
    ///
    /// # Errors
    /// [`Error::Count`](crate::Error::Count), or [`Error::Entry`](crate::Error::Entry) for a
    /// weight that is negative or not finite.
    pub fn new(inner: O, lambda: Vec<f64>) -> Result<Self> {
        check_count("entries of lambda", inner.n_params(), lambda.len())?;
        check_weights("lambda", &lambda)?;
        Ok(Self { inner, lambda })
    }
}

impl<O: Objective> Objective for Ridge<O> {
    fn n_params(&self) -> usize {
        self.inner.n_params()
    }

    fn value_and_gradient(&mut self, theta: &[f64], grad: &mut [f64]) -> f64 {
        let mut value = self.inner.value_and_gradient(theta, grad);
        for ((g, &t), &l) in grad.iter_mut().zip(theta).zip(&self.lambda) {
            value += 0.5 * l * t * t;
            *g += l * t;
        }
        value
    }

    fn set_rough(&mut self, rough: bool) -> bool {
        self.inner.set_rough(rough)
    }
}

/// f(s ∘ u) as a function of u: other units of the parameters.
#[derive(Clone, Debug)]
pub(crate) struct Scaled<O> {
    inner: O,
    scales: Vec<f64>,
    theta: Vec<f64>,
}

impl<O: Objective> Scaled<O> {
    /// Takes u_k in units of `scales[k]`.
    pub(crate) fn new(inner: O, scales: Vec<f64>) -> Self {
        let theta = vec![0.0; scales.len()];
        Self {
            inner,
            scales,
            theta,
        }
    }
}

impl<O: Objective> Objective for Scaled<O> {
    fn n_params(&self) -> usize {
        self.inner.n_params()
    }

    fn value_and_gradient(&mut self, u: &[f64], grad: &mut [f64]) -> f64 {
        for ((t, u), s) in self.theta.iter_mut().zip(u).zip(&self.scales) {
            *t = u * s;
        }
        let value = self.inner.value_and_gradient(&self.theta, grad);
        for (g, s) in grad.iter_mut().zip(&self.scales) {
            *g *= s;
        }
        value
    }

    fn set_rough(&mut self, rough: bool) -> bool {
        self.inner.set_rough(rough)
    }
}

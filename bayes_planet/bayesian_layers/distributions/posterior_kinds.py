"""Which posteriors the formula of an estimator holds for."""

from __future__ import annotations

from typing import Any

from tensorflow_probability import distributions as tfd

# Of these events are vectors, whose elements are independent all the same.
_INDEPENDENT_VECTORS = (tfd.MultivariateNormalDiag, tfd.Sample, tfd.VectorDeterministic)
_WITHOUT_MOMENTS = (tfd.Cauchy, tfd.HalfCauchy)
_SKEWED = (
    tfd.Exponential,
    tfd.Gamma,
    tfd.Gumbel,
    tfd.HalfCauchy,
    tfd.HalfNormal,
    tfd.InverseGamma,
    tfd.LogNormal,
    tfd.Weibull,
)


def require_moments(posterior: tfd.Distribution, weight: str, layer: str) -> None:
    """ValueError unless a weight's elements are independent, with a mean and a variance.

    So moments of a product add up: the noise of outputs (Kingma et al. 2015), moments instead of draws (Wu et al.
    2019).
    """
    family = family_of(posterior)
    if _has_independent_elements(family) and _has_moments(family):
        return
    raise ValueError(
        f"The {weight} of layer {layer!r} has a posterior {family.name!r}. Accepted: posteriors with independent "
        "elements, a mean and a variance, such as 'trainable_normal'. For others take the layer named "
        "...Reparameterization, which draws the weights."
    )


def require_symmetry(posterior: tfd.Distribution, weight: str, layer: str) -> None:
    """ValueError unless a weight's elements are independent and, as far as is known, symmetric about their mean.

    So a deviation from the mean with any signs has the distribution of the deviation (Wen et al. 2018, section 3.1). Of
    a posterior without a mean, such as Cauchy's, `mean_value` is the centre.
    """
    family = family_of(posterior)
    if not _has_independent_elements(family) or isinstance(family, _SKEWED) or _has_many_points(family):
        raise ValueError(
            f"The {weight} of layer {layer!r} has a posterior {family.name!r}. Accepted: posteriors with independent "
            "elements that are symmetric about their mean, such as 'trainable_normal', for Flipout turns the signs of "
            "deviations from it. For others take the layer named ...Reparameterization, which draws the weights."
        )


def family_of(distribution: Any) -> Any:
    """The distribution of the elements, without the `tfd.Independent` around it."""
    while isinstance(distribution, tfd.Independent):
        distribution = distribution.distribution
    return distribution


def _has_independent_elements(family: tfd.Distribution) -> bool:
    return family.event_shape.rank == 0 or isinstance(family, _INDEPENDENT_VECTORS)


def _has_moments(family: tfd.Distribution) -> bool:
    try:
        return not isinstance(family, _WITHOUT_MOMENTS) and None not in (family.mean(), family.variance())
    except NotImplementedError:
        return False


def _has_many_points(family: tfd.Distribution) -> bool:
    """Whether it is a mixture of three point masses or more: two of equal weight are symmetric."""
    points = getattr(family, "components_distribution", None)
    return isinstance(points, tfd.Deterministic) and points.loc.shape[-1] > 2

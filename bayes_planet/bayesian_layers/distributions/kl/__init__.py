"""KL divergences between weights' distributions, in closed form, by quadrature or from samples, and their scale."""

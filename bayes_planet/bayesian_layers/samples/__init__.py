"""Weight samples as values, the scope they are used in, and KL divergences by layer."""

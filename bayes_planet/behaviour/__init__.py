"""What acts in latent states: the actor network, values, and what they learn in imagination."""

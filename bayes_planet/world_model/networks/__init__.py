"""Encoders, decoders and the layers they are made of."""

"""Noise that is correlated over time: actions that are held, rather than averaged away."""

import numpy as np


def noise_matrix(steps: int, exponent: float) -> np.ndarray:
    """M, float32 [T, T]: white noise [T] times M is Gaussian noise of variance 1 with power spectrum 1 / f^exponent.

    Args:
      steps: T.
      exponent: 0 is white noise (M is orthogonal), 1 pink, 2 brownian. The lowest frequency counts as 1 / T.

    Source: Timmer and Koenig 1995, as in Pinneri et al. 2020 (iCEM), Sec. 3.1.
    """
    frequencies = np.fft.rfftfreq(steps)
    amplitudes = np.maximum(frequencies, 1.0 / steps) ** (-exponent / 2.0)
    # An orthonormal real Fourier basis, then one amplitude for each of its functions.
    basis, scales = [np.full(steps, 1.0 / np.sqrt(steps))], [amplitudes[0]]
    time = np.arange(steps)
    for index, frequency in enumerate(frequencies[1:], 1):
        angle = 2.0 * np.pi * frequency * time
        waves = [np.cos(angle)] if 2 * index == steps else [np.cos(angle), np.sin(angle)]
        basis += [wave / np.linalg.norm(wave) for wave in waves]
        scales += [amplitudes[index]] * len(waves)
    matrix = np.array(scales)[:, None] * np.array(basis)
    return (matrix * np.sqrt(steps / np.sum(np.square(scales)))).astype(np.float32)

"""`train.precision=auto` on a processor."""

import pytest

from bayes_planet.world_model.networks.precision import multiplies_bfloat16


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("GenuineIntel", "avx512f avx512_bf16 amx_bf16 amx_tile", True),
        ("GenuineIntel", "avx512f avx512_bf16", False),
        ("AuthenticAMD", "avx512f avx512_bf16", True),
        ("AuthenticAMD", "avx2", False),
    ],
)
def test_bfloat16_is_taken_where_it_is_faster(vendor, flags, expected):
    """Intel's AVX512-BF16 alone was slower than float32 (`dtype_policy` says by how much), AMD's faster (results/benchmarks)."""
    assert multiplies_bfloat16(f"vendor_id\t: {vendor}\nflags\t\t: fpu {flags} vme\n") is expected

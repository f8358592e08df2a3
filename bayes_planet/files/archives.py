"""Arrays out of NumPy archives from anywhere: what they unpack to is bounded, and no Python object is made."""

import io
import math
import zipfile

import numpy as np

_HEADERS = 2**16
"""Bytes that the arrays' headers may take, beside the arrays."""
_KNOWN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what NumPy writes; zipfile unpacks others without a bound


class ArchiveError(ValueError):
    """Bytes that are no NumPy archive, a damaged one, or one that is too large."""


def read_arrays(data: bytes, most: int) -> dict[str, np.ndarray]:
    """The arrays of an `.npz` file by name; they cannot be written to.

    Args:
        data: the file.
        most: bytes that all arrays may have together.

    Raises:
        ArchiveError: see there; the text says the limit.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if size > most + _HEADERS:
                raise ValueError(f"it unpacks to {size} bytes, at most {most} are accepted")
            if len({member.filename for member in members}) < len(members):
                raise ValueError("it has two arrays of one name")
            return {member.filename.removesuffix(".npy"): _array(_unpacked(archive, member)) for member in members}
    except MemoryError:
        raise
    except Exception as error:  # a damaged archive makes zipfile, zlib and NumPy raise nearly anything
        raise ArchiveError(str(error) or type(error).__name__) from error


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """What a member holds, and never more than it says that it does."""
    if member.compress_type not in _KNOWN:
        raise ValueError(f"{member.filename[:80]!r} is packed in another way than stored or deflated")
    with archive.open(member) as file:
        data = file.read(member.file_size)
        if len(data) < member.file_size or file.read(1):
            raise ValueError(f"{member.filename[:80]!r} is not as long as it says")
    return data


def _array(data: bytes) -> np.ndarray:
    """The array of an `.npy` member. Not `numpy.load`, which allocates whatever size a damaged header claims."""
    stream = io.BytesIO(data)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"array format {version} is not (1, 0)")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    if math.prod(shape) == 0:
        return np.zeros(shape, dtype)
    array = np.frombuffer(data, dtype, offset=stream.tell())
    return array.reshape(shape[::-1]).T if fortran_order else array.reshape(shape)

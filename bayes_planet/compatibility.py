"""What single releases of TensorFlow and tf-keras need, done while they are imported; nothing where they need nothing.

TensorFlow 2.19 to 2.21 load their libraries so that their copy of LLVM is taken by Mesa too, which then crashes the
process at the first image that it draws (tensorflow issues 109933 and 124205). tf-keras 2.18.0 asks Python 3.12 and
later for a random integer up to a float, which those refuse. Later ones save layers with words that 2.18 does not know.
"""

import contextlib
import importlib.abc
import importlib.machinery
import inspect
import os
import random
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

GLOBAL_FLAGS = "tensorflow.python.pywrap_dlopen_global_flags"
"""TensorFlow's module that makes its symbols everybody's; the releases that do so have it."""


def shares_symbols() -> bool:
    """Whether this process has a TensorFlow whose symbols are everybody's, so that Mesa crashes when it draws."""
    return sys.modules.get(GLOBAL_FLAGS) is not None


@contextlib.contextmanager
def own_symbols(tensorflow: Path) -> Iterator[None]:
    """TensorFlow and Mesa each keep to their own LLVM, if TensorFlow is imported inside.

    Both measures are needed: one for each order of import and drawing. Under LD_PRELOAD none is taken: what it loads,
    such as another malloc, has to be everybody's.
    """
    affected = sys.platform == "linux" and (tensorflow / "python" / "pywrap_dlopen_global_flags.py").exists()
    if not affected or os.environ.get("LD_PRELOAD"):
        yield
        return
    before = sys.getdlopenflags()
    sys.modules[GLOBAL_FLAGS] = None  # type: ignore[assignment]  # its import fails, as TensorFlow allows
    sys.setdlopenflags(os.RTLD_NOW | os.RTLD_DEEPBIND)
    try:
        yield
    finally:
        sys.setdlopenflags(before)


def mend_seeds(backend: types.ModuleType) -> None:
    """Lets tf-keras's seed generator count to a float, where it does so and Python refuses it."""
    generator = getattr(backend, "_SEED_GENERATOR", None)
    if generator is None or sys.version_info < (3, 12) or b"1, 1e9" not in _source(backend):
        return
    create = backend.RandomGenerator._create_seed

    def create_seed(self, user_specified_seed):  # type: ignore[no-untyped-def]
        seeds = getattr(generator, "generator", None)
        if user_specified_seed is None and isinstance(seeds, random.Random):
            return seeds.randint(1, 10**9)
        return create(self, user_specified_seed)

    backend.RandomGenerator._create_seed = create_seed


NEW_WORDS = {
    "tf_keras.src.engine.input_layer": ("InputLayer", "optional"),
    "tf_keras.src.layers.attention.multi_head_attention": ("MultiHeadAttention", "softmax_robust_masking"),
}
"""By tf-keras's module: a layer, and what it has been saved with since 2.19 and cannot be made with before; False says
that it is as before."""


def mend_reading(module: types.ModuleType) -> None:
    """Lets a tf-keras read layers that a later one saved and that have nothing of what is new in it."""
    name, word = NEW_WORDS[module.__name__]
    layer = getattr(module, name)
    if word in inspect.signature(layer.__init__).parameters:
        return
    from_config = layer.from_config.__func__

    def read(cls, config):  # type: ignore[no-untyped-def]
        known = {key: value for key, value in config.items() if key != word or value}
        return from_config(cls, known)

    layer.from_config = classmethod(read)


MENDED = {"tf_keras.src.backend": mend_seeds} | dict.fromkeys(NEW_WORDS, mend_reading)
"""tf-keras's modules that are mended, and by what."""


def _source(module: types.ModuleType) -> bytes:
    return Path(module.__file__).read_bytes() if module.__file__ else b""


class _Loader(importlib.abc.Loader):
    """A module's own loader, with what the module needs around it."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        module.__loader__ = module.__spec__.loader = self._loader  # type: ignore[union-attr]
        if module.__name__ == "tensorflow":
            with own_symbols(Path(module.__file__ or "").parent):
                self._loader.exec_module(module)
        else:
            self._loader.exec_module(module)
            MENDED[module.__name__](module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules where they would be found anyway."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "tensorflow" and fullname not in MENDED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


def install() -> None:
    """Once a process, before TensorFlow is imported; what is imported already is mended as far as it can be."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    for name, mend in MENDED.items():
        if (module := sys.modules.get(name)) is not None:
            mend(module)

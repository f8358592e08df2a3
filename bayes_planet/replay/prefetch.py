"""Drawing the next batch while the present one is used."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

Index = TypeVar("Index")
Item = TypeVar("Item")


class Prefetcher(Generic[Index, Item]):
    """Iterates over `function(index) for index in indices`, one item ahead, in one background thread.

    The items and their order are those of the plain loop. Item k + 1 is drawn from the moment item k is handed
    out, so `function` reads what there is then. At most two items exist: the one in use and the next.
    An exception of `function` is raised at the turn of its item, and ends the iteration.

        with Prefetcher(lambda update: store.sample(50, 50, (seed, update)), range(first, last)) as batches:
            for batch in batches: ...
    """

    def __init__(self, function: Callable[[Index], Item], indices: Iterable[Index]) -> None:
        self._function = function
        self._indices = iter(indices)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch")
        self._next: Future[Item] | None = None
        self._submit()

    def _submit(self) -> None:
        try:
            index = next(self._indices)
        except StopIteration:
            self._next = None
            self._executor.shutdown()
            return
        self._next = self._executor.submit(self._function, index)

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        if self._next is None:
            raise StopIteration
        try:
            item = self._next.result()
        except Exception:
            self.close()
            raise
        self._submit()
        return item

    def close(self) -> None:
        """Waits for the item being drawn and drops it. May be called twice."""
        self._next = None
        self._executor.shutdown(cancel_futures=True)

    def __enter__(self) -> "Prefetcher[Index, Item]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

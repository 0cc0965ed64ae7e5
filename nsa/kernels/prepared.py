"""Launches that were made before, at a third of what Triton takes for one, or less.

Triton looks at every argument of a launch, type, alignment and value, and writes what it saw as text, to find what it
compiled. Of a launch of ours shapes decide all of that but where the tensors lie: whoever makes it keeps a
``Prepared`` by those shapes (``kept``), and from the second call on it goes straight to the driver with what was
compiled, unless somebody, as a profiler, has asked Triton to be called at every launch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

kept = lru_cache(maxsize=4096)
"""For functions of shapes, types and places that make launches: texts of many lengths do not fill the memory."""


def places(*tensors: Tensor) -> tuple[Any, ...]:
    """What of tensors decides which launch fits them, beside their shapes: device, types, and who starts unevenly."""
    return tensors[0].device, *[(x.dtype, x.data_ptr() % 16 == 0) for x in tensors]


class Prepared:
    """One kernel over one grid, with numbers and constants that stay and tensors that may change.

    The kernel's parameters are tensors (or boxes of tensors), numbers and constants, in this order. All tensors of all
    calls are on one device, of the first call's types, and start at multiples of 16 bytes where the first call's do:
    who keeps a launch keeps it by the ``places`` of tensors that come from outside. Fresh ones always start so.
    """

    __slots__ = ("_constants", "_grid", "_kernel", "_numbers", "_run")

    def __init__(self, kernel: Any, grid: tuple[int, ...], *numbers: float, **constants: Any) -> None:
        """Remember it; nothing is compiled yet.

        Args:
            kernel: of ``triton.jit`` or ``gluon.jit``.
            grid: programs along up to three axes.
            numbers: what follows the tensors.
            constants: the rest by name, and ``num_warps`` and the like.
        """
        self._kernel, self._grid, self._numbers, self._constants = kernel, grid, numbers, constants
        self._run: Callable[..., Any] | None = None

    def __call__(self, *tensors: Any) -> None:
        """Launch it on the current stream."""
        if self._run is not None:
            self._run(*tensors)
            return
        compiled = self._kernel[self._grid](*tensors, *self._numbers, **self._constants)
        if compiled is None:  # Triton's interpreter compiles nothing
            return
        parameters = self._kernel.params[len(tensors) + len(self._numbers) :]
        rest = (*self._numbers, *(self._constants.get(p.name, p.default) for p in parameters))
        self._run = _launcher(compiled, (*self._grid, 1, 1)[:3], rest)


def _launcher(compiled: Any, grid: tuple[int, ...], rest: tuple[Any, ...]) -> Callable[..., None]:
    """What launches a compiled kernel over ``grid`` with the tensors that it is called with and the ``rest``.

    ``compiled[grid]`` does the same, and makes a dictionary for every launch for hooks that hardly anybody has set.
    """
    from triton import knobs
    from triton.runtime import driver

    watched = compiled[grid]
    run, of_kernel, hooks = compiled.run, (compiled.function, compiled.packed_metadata), (None, None, None)
    runtime = knobs.runtime

    def launch(*tensors: Any) -> None:
        if runtime.launch_enter_hook.calls or runtime.launch_exit_hook.calls:
            watched(*tensors, *rest)
            return
        active: Any = driver.active
        stream = active.get_current_stream(active.get_current_device())
        # Of a tensor the launch would call the same, and then ask CUDA what memory that is.
        given = [x.data_ptr() if isinstance(x, Tensor) else x for x in tensors]
        run(*grid, stream, *of_kernel, *hooks, *given, *rest)

    return launch

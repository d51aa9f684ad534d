"""The LLVM compiler of this process, which the extra ``jit`` installs."""

from __future__ import annotations

import functools
import importlib.util
import itertools
from typing import Any, Final

_NUMBERS: Final = itertools.count()


@functools.cache
def is_installed() -> bool:
    """Return whether llvmlite can be imported."""
    return importlib.util.find_spec("llvmlite") is not None


@functools.cache
def _compiler() -> Any:
    """Return the compiler of this process, for the processor that it runs on."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(),
        features=binding.get_host_cpu_features().flatten(),
        opt=1,  # the loops are written as they should be: more takes longer and changes nothing
        jit=True,
    )
    return binding.create_lljit_compiler(machine)


def compile_function(module: str, name: str) -> tuple[int, Any]:
    """Compile a function of a module in LLVM's language; return its address, and the code's owner.

    It may call the C library.
    """
    from llvmlite import binding

    builder = binding.JITLibraryBuilder().add_ir(module).add_current_process()
    code = builder.export_symbol(name).link(_compiler(), f"spliter-{next(_NUMBERS)}")
    return code[name], code

"""Builds tests/fakes/nvml.c once a session and steers it."""

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml.c")
H100 = "GPU-11111111-2222-3333-4444-555555555555"
A10 = "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"


@functools.cache
def build(*hidden: str) -> Path:
    """The fake library's path; symbols in `hidden` are absent from it."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tempfile.mkdtemp(prefix="fake-nvml-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder, "libnvidia-ml.so.1")
    command = [compiler, "-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"]
    if hidden:
        script = Path(folder, "hidden.map")
        names = " ".join(f"{name};" for name in hidden)
        script.write_text(f"{{ local: {names} }};")
        command.append(f"-Wl,--version-script={script}")
    subprocess.run([*command, "-o", str(path), str(SOURCE)], check=True)
    return path


class FakeNvml:
    """A loaded fake library, reset; its `path` is what the telemetry is given."""

    def __init__(self, *hidden: str) -> None:
        self.path = build(*hidden)
        self._library = ctypes.CDLL(str(self.path))
        self._library.fake_nvml_calls.restype = ctypes.c_longlong
        self("reset")

    def __call__(self, script: str) -> None:
        """Change the behaviour; the language is described in nvml.c."""
        self._library.fake_nvml_control(script.encode())

    def calls(self, function: str) -> int:
        """How often a function was called."""
        return int(self._library.fake_nvml_calls(function.encode()))

    def foreign_shutdown(self) -> None:
        """Another component shuts the library down for the whole process."""
        self._library.fake_nvml_foreign_shutdown()


def forget_library() -> None:
    """Leave no fake behind in the process-wide pynvml module."""
    import pynvml

    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()
    # The words of an error are kept for good, and were the fake's.
    for code in [c for c, text in pynvml.NVMLError._errcode_to_string.items() if "fake" in text]:
        del pynvml.NVMLError._errcode_to_string[code]

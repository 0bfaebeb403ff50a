"""Parquet: a line a sample, parameters as columns. Needs pyarrow (extra `parquet`)."""

import importlib
import io
from typing import Any

import numpy as np

from usv_tui.errors import UsageError
from usv_tui.session.opened import Opened
from usv_tui.session.samples import columns


def data(session: Opened) -> bytes:
    """The file's bytes.

    Raises:
        UsageError: pyarrow is not installed.
    """
    try:
        pyarrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise UsageError("Parquet needs pyarrow", "pip install 'usv-tui[parquet]'") from None
    made = {name: _array(pyarrow, values) for name, values in columns(session.store).items()}
    out = io.BytesIO()
    parquet.write_table(pyarrow.table(made), out)
    return out.getvalue()


def _array(pyarrow: Any, values: Any) -> Any:
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return pyarrow.array(values, from_pandas=True)  # NaN is null
    return pyarrow.array(values)

"""The screen as a picture: where it goes, and a PNG of it where a converter is installed."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

TIMEOUT_S = 30.0
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_OTHERS = {
    "inkscape": ("{svg}", "--export-type=png", "--export-filename={png}"),
    "rsvg-convert": ("{svg}", "-o", "{png}"),
    "magick": ("{svg}", "{png}"),
}
_SIZE = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def name_beside(session: Path | None, folder: Path, title: str) -> Path:
    """A new file beside the session, or in a folder where there is none."""
    stem = session.stem if session is not None else Path(title).stem or "usv-tui"
    where = session.parent if session is not None else folder
    stamp = time.strftime("%H%M%S")
    path = where / f"{stem}-{stamp}.svg"
    count = 1
    while path.exists():
        count += 1
        path = where / f"{stem}-{stamp}-{count}.svg"
    return path


def converter(svg: Path) -> list[str] | None:
    """What makes a PNG beside the SVG; None where nothing here can."""
    png = svg.with_suffix(".png")
    for name in _BROWSERS:
        found = shutil.which(name)
        if found is not None:
            return [found, *_for_browser(svg, png)]
    for name, arguments in _OTHERS.items():
        found = shutil.which(name)
        if found is not None:
            return [found, *(a.format(svg=svg, png=png) for a in arguments)]
    return None


def _for_browser(svg: Path, png: Path) -> list[str]:
    size = _SIZE.search(svg.read_text(errors="replace"))
    width, height = (round(float(n)) for n in size.groups()) if size else (1600, 1200)
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [
        *("--headless", "--disable-gpu", "--hide-scrollbars", *root),
        *(f"--window-size={width},{height}", f"--screenshot={png}", svg.absolute().as_uri()),
    ]


def to_png(command: list[str], svg: Path) -> Path | None:
    """Run a converter, with what others leave of the processors; None where it failed."""
    nice = shutil.which("nice")
    png = svg.with_suffix(".png")
    try:
        subprocess.run(
            [*([nice, "-n", "19"] if nice else []), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return png if png.exists() else None

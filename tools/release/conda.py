"""`make conda`: PYTHONPATH=tools python -m release.conda [--channel conda-forge]

Builds conda/recipe.yaml with rattler-build, from the source archive of the last commit, and runs the recipe's tests.
Without a channel, packages of this machine stand in for conda-forge's. That tries the recipe, and the package that it
builds is of no use elsewhere. Exit status 1 if the build or a test fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rattler_build import Package, RattlerBuildError, RenderedVariant, Stage0Recipe, ToolConfiguration, VariantConfig
from rattler_build.progress import SimpleProgressCallback

from release.source import build_source_archive, release_time
from release.stand_in_channel import asked_for, write_channel

ROOT = Path(__file__).resolve().parents[2]
RECIPE = ROOT / "conda" / "recipe.yaml"
# The recipe takes its source archive from here.
FOLDER = ROOT / "build" / "conda"
# conda-forge's settings for Linux have these for every recipe, with versions.
VARIANTS = {"c_compiler": ["gcc"], "c_stdlib": ["sysroot"]}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release.conda", description=__doc__)
    parser.add_argument("--channel", help="conda-forge, or the address of another; default: this machine's packages")
    arguments = parser.parse_args()
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    with TemporaryDirectory(prefix="pykafka-conda.") as scratch:
        build_source_archive(ROOT, FOLDER, Path(scratch), release_time(ROOT))
    (variant,) = Stage0Recipe.from_file(RECIPE).render(VariantConfig(VARIANTS))
    log = StringIO()
    try:
        with redirect_stdout(log):
            package = build(variant, arguments.channel)
    except RattlerBuildError as error:
        print(log.getvalue(), error, sep="\n", file=sys.stderr)
        return 1
    tests = len(Package.from_file(package).tests)
    print(f"{package.name}: {package.stat().st_size:,} bytes, built, and its {tests} tests passed")
    return 0


def build(variant: RenderedVariant, channel: str | None) -> Path:
    """Build the package and run its tests. Return its path. Raises RattlerBuildError if either fails.

    rattler-build prints what it does."""
    output = FOLDER / "packages"
    if channel is None:
        packages, empty = asked_for(variant.recipe.to_dict())
        write_channel(output, variant.variant["target_platform"], packages, empty)
        # The user's own cache must not keep packages that stand in for others.
        os.environ["RATTLER_CACHE_DIR"] = str(FOLDER / "cache")
    result = variant.run_build(
        tool_config=ToolConfiguration(test_strategy="native"),
        output_dir=output,
        channels=[] if channel is None else [channel],
        progress_callback=SimpleProgressCallback(),
    )
    package: Path
    (package,) = result.packages
    return package


if __name__ == "__main__":
    sys.exit(main())

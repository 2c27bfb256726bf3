"""Each platform once, under one name of the wheel's tag and of the compiler's triple."""

import platform

import pytest
from packaging.tags import sys_tags

from release.targets import TARGETS, System, Target


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.tag)
def test_triple_and_tag_name_the_same_processor_and_version(target: Target) -> None:
    assert target.tag.endswith(f"_{target.machine}")
    assert target.triple.startswith({"arm64": "aarch64"}.get(target.machine, target.machine))
    if target.system is not System.MUSL:
        major, minor = target.tag.split("_")[1:3]
        assert target.triple.endswith(f".{major}.{minor}")


@pytest.mark.skipif(platform.system() not in ("Linux", "Darwin"), reason="there is no wheel for this system")
def test_a_target_runs_here_if_this_interpreter_takes_its_tag() -> None:
    """pip's own rules decide which wheel is taken."""
    taken = {tag.platform for tag in sys_tags() if tag.abi == "abi3"}
    assert [target for target in TARGETS if target.runs_here()] == [t for t in TARGETS if t.tag in taken]

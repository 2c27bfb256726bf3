"""The last stage of a Containerfile, built and run without a builder of images: in a folder, as root.

Its base is an empty Debian, which mmdebstrap makes of Debian's packages. A container is a process with that folder as
its root, with mounts of its own and the variables of the image. Processes and the network are the machine's.
"""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

BASES = {"docker.io/library/debian:bookworm-slim": "bookworm"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEADLINE_S = 600
# Arguments: the root, the user, the folder, and the command, which takes this process over.
ENTER = """
mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev"
exec chroot --userspec="$2" "$1" /bin/sh -c 'cd "$0" && exec "$@"' "${@:3}"
"""


def lacking() -> str | None:
    """Return what this machine lacks to build an image, or None."""
    if os.geteuid() != 0:
        return "only root may change the root folder of a process"
    missing = [name for name in ("mmdebstrap", "unshare") if shutil.which(name) is None]
    return f"not installed: {' and '.join(missing)} (Debian: apt-get install mmdebstrap)" if missing else None


@dataclass(slots=True)
class Image:
    root: Path
    variables: dict[str, str] = field(default_factory=lambda: {"PATH": PATH})
    user: str = "root"
    folder: str = "/"
    entrypoint: list[str] = field(default_factory=list)

    def command(self, *words: object) -> list[str]:
        """Return what runs `words` in a container, without its entry point. Its environment is the caller's duty."""
        here = [str(self.root), self.user, self.folder, *map(str, words)]
        return ["unshare", "--mount", "bash", "-c", ENTER, "enter", *here]

    def run(self, *words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), env=self.variables | variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=DEADLINE_S,
        )  # fmt: skip


def instructions(file: Path) -> list[tuple[str, str]]:
    """Return the name and the rest of each instruction, without comments, on one line each."""
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, rest in (line.split(maxsplit=1) for line in whole.splitlines())]


def built(file: Path, context: Path, stages: Mapping[str, Path], root: Path, hosts: Iterable[str] = ()) -> Image:
    """Run the steps of `file`. `context` has what they copy, `stages` the folder that stands for each other stage.

    `hosts`: more lines for /etc/hosts. As builders do, a step has the machine's network, and pip's settings.
    """
    steps = instructions(file)
    last = max(i for i, (name, _) in enumerate(steps) if name == "FROM")
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", BASES[steps[last][1]], root], check=True, timeout=DEADLINE_S
    )
    shutil.copy("/etc/resolv.conf", root / "etc")
    names = f"127.0.0.1 localhost {socket.gethostname()}"
    (root / "etc" / "hosts").write_text("".join(f"{line}\n" for line in (names, *hosts)))
    image, of_pip = Image(root), {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    if "PIP_CERT" in of_pip:
        shutil.copy(of_pip["PIP_CERT"], root / "etc" / "pip.pem")
        of_pip["PIP_CERT"] = "/etc/pip.pem"
    for name, rest in steps[last + 1 :]:
        match name:
            case "RUN":
                done = image.run("/bin/sh", "-c", rest, **of_pip)
                assert done.returncode == 0, f"{rest}\n{done.stdout}"
            case "COPY":
                copy(image, rest, context, stages)
            case "ENV":
                image.variables |= dict(pair.split("=", maxsplit=1) for pair in shlex.split(rest))
            case "USER":
                image.user = rest
            case "WORKDIR":
                image.folder = rest
                (root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case "ENTRYPOINT":
                image.entrypoint = json.loads(rest)
            case _:
                raise AssertionError(f"no step of this kind is known here: {name} {rest}")
    return image


def copy(image: Image, rest: str, context: Path, stages: Mapping[str, Path]) -> None:
    """The contents of a folder, or files into a folder."""
    words = shlex.split(rest)
    flags = dict(word[2:].split("=", maxsplit=1) for word in words if word.startswith("--"))
    *patterns, to = (word for word in words if not word.startswith("--"))
    home, target = stages[flags["from"]] if "from" in flags else context, image.root / to.lstrip("/")
    found = [path for pattern in patterns for path in home.glob(pattern.lstrip("/"))]
    assert len(found) >= len(patterns), f"nothing to copy: {rest}"
    target.mkdir(parents=True, exist_ok=True)
    for path in found:
        if path.is_dir():
            shutil.copytree(path, target, dirs_exist_ok=True)
        else:
            shutil.copy(path, target)
    if "chown" in flags:
        image.run("chown", "--recursive", flags["chown"], to).check_returncode()

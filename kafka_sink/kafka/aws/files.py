"""AWS's two files: credentials and config, with one section for each profile.

The section of the profile `demo` is `[demo]` in the file of credentials and `[profile demo]` in the file of config.
That of `default` is `[default]` in both. A setting in the file of credentials wins.

Source: docs.aws.amazon.com/sdkref/latest/guide/file-format.html; botocore.configloader.
"""

from __future__ import annotations

import configparser
import shlex
from collections.abc import Mapping
from pathlib import Path

from kafka_sink.kafka.aws.missing import Missing

DEFAULT_PROFILE = "default"
# (variable that names the file, place without it)
CREDENTIALS_FILE = ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
CONFIG_FILE = ("AWS_CONFIG_FILE", "~/.aws/config")


def profile_name(environment: Mapping[str, str]) -> str:
    """Return the profile that applies if the options name none."""
    return environment.get("AWS_PROFILE") or environment.get("AWS_DEFAULT_PROFILE") or DEFAULT_PROFILE


def profile(name: str, environment: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the settings of a profile, or None if neither file has it. Raises Missing for a file that is unusable."""
    found = [
        section
        for kind, is_config in ((CONFIG_FILE, True), (CREDENTIALS_FILE, False))
        for section_name, section in _sections(kind, environment).items()
        if _profile_of(section_name, is_config=is_config) == name
    ]
    return {key: value for section in found for key, value in section.items()} if found else None


def _profile_of(section: str, *, is_config: bool) -> str | None:
    """Return the profile that a section describes, or None if it describes something else (`[sso-session x]`)."""
    if not is_config or section == DEFAULT_PROFILE:
        return section
    try:
        # A name with blanks is quoted.
        words = shlex.split(section)
    except ValueError:
        return None
    return words[1] if len(words) == 2 and words[0] == "profile" else None


def _sections(kind: tuple[str, str], environment: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    variable, otherwise = kind
    path = Path(environment.get(variable) or otherwise)
    parser = configparser.RawConfigParser(default_section="")
    try:
        # The home of the environment that is given, as os.path.expanduser finds it in the process's own.
        home = environment.get("HOME")
        text = (Path(home, *path.parts[1:]) if home and path.parts[:1] == ("~",) else path.expanduser()).read_text()
        parser.read_string(text)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or "it has no home directory"
        raise Missing(f"{path} cannot be read: {why}", f"correct {variable} or the file's permissions") from None
    except (configparser.Error, UnicodeDecodeError):
        # The parser's message quotes lines, which have keys in them. `from None` alone would keep it as the context.
        pass
    else:
        return {name: dict(parser[name]) for name in parser.sections()}
    raise Missing(f"{path} is not a file of profiles", "correct it: [name], then lines of name = value")

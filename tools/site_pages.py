"""A page for each error and for each option, which mkdocs makes while it builds the site (`hooks` in mkdocs.yml).

The search finds a page by its title, and a message can link to it. The texts are those of errors.md, options.md and
reading-options.md, where each name links to its page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from markdown.extensions.toc import slugify
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import errors_page
import options_page
from kafka_sink.cli.explain import by_section
from kafka_sink.options.kinds import Option, OptionTable
from kafka_sink.options.reading import READING
from kafka_sink.options.table import WRITING

# The page of a table of options, and what it is about.
_TABLES = {"options.md": ("writes", WRITING), "reading-options.md": ("reads", READING)}
_DIALOG = ' role="dialog"', ' role="dialog" aria-label="Search"'
_FIRST_CELL = re.compile(r"^\| `([\w.]+)` \|", re.MULTILINE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link each name in the first cell of a row of the three tables to its page."""
    source = page.file.src_uri
    if source != "errors.md" and source not in _TABLES:
        return markdown
    folder = "errors" if source == "errors.md" else "options"

    def linked(match: re.Match[str]) -> str:
        target = f"{folder}/{match[1]}.md"
        return f"| [`{match[1]}`]({target}) |" if files.get_file_from_path(target) else match[0]

    return _FIRST_CELL.sub(linked, markdown)


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make cells of data of empty headers: a header that says nothing confuses screen readers."""
    return html.replace("<th></th>", "<td></td>")


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Name the theme's dialog, for screen readers."""
    return output.replace(*_DIALOG)


def on_post_template(output: str, *, template_name: str, config: MkDocsConfig) -> str:
    """Do the same on 404.html."""
    return output.replace(*_DIALOG)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the Markdown of each page.

    The search also finds names that begin with the name that is typed, and prefers rare words: it must be told that
    `groupId` comes before `groupIdPrefix`.
    """
    made = dict(_pages())
    ranks: dict[str, int] = {}
    for name in sorted((PurePosixPath(path).stem.lower() for path in made), key=len, reverse=True):
        ranks[name] = max((rank + 1 for longer, rank in ranks.items() if longer.startswith(name)), default=0)
    # A title counts 1,000 times what a text does, which must not win against it.
    for path, text in made.items():
        yield path, f"---\nsearch: {{boost: {10 ** ranks[PurePosixPath(path).stem.lower()]}}}\n---\n{text}"


def _pages() -> Iterator[tuple[str, str]]:
    for title, classes in by_section():
        for cls in classes:
            yield f"errors/{cls.__name__}.md", errors_page.page_of(cls, title)
    for name in sorted({name for _, table in _TABLES.values() for name in (*_options(table), *table.refused)}):
        yield f"options/{name}.md", _page_of(name)


def _options(table: OptionTable) -> dict[str, tuple[str, Option]]:
    """Return the options by their names, each with the title of its section."""
    return {option.name: (section.title, option) for section in table.sections for option in section.options}


def _page_of(name: str) -> str:
    parts = [f"# {name}", *([f"Kafka's `{name.removeprefix('kafka.')}`."] if name.startswith("kafka.") else [])]
    for page, (what, table) in _TABLES.items():
        title, option = _options(table).get(name, ("Refused", None))
        heading = f"## [Options of {what}](../{page}#{slugify(title, '-')}): {title.lower()}"
        if option is not None:
            parts += [heading, options_page.meaning(option), options_page.facts(option)]
        elif name in table.refused:
            parts += [heading, table.refused[name]]
    return "\n\n".join(parts) + "\n"

"""The pages for people agree with the code: examples compile, and what they name exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ffq_spark import errors
from ffq_spark.cli.main import main
from ffq_spark.options import ReadOptions, ServeOptions, WriteOptions, environment_name

TOP = Path(__file__).parents[2]
PAGES = sorted(
    str(path.relative_to(TOP))
    for pattern in ("*.md", "docs/*.md", "conf/**/*.md", "jars/*.md")
    for path in TOP.glob(pattern)
)
CODE_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`([^`]+)`")
OPTIONS = {
    field.metadata["name"]
    for declaration in (WriteOptions, ReadOptions, ServeOptions)
    for field in declaration.declared()
}
OPTIONS_OF_SPARK = {"checkpointLocation"}


def text_of(page: str) -> str:
    return (TOP / page).read_text()


def code_blocks(page: str, language: str) -> list[str]:
    """Return the code blocks of a page in a language; "" stands for shell commands."""
    return [
        re.sub(f"^{indent}", "", code, flags=re.MULTILINE)
        for indent, name, code in CODE_BLOCK.findall(text_of(page))
        if name == language
    ]


def calls(page: str, program: str) -> Iterator[list[str]]:
    """Yield the words behind each call of a program, in code blocks and in inline code."""
    lines = [line for code in code_blocks(page, "") for line in code.splitlines()]
    lines += INLINE_CODE.findall(CODE_BLOCK.sub("", text_of(page)))
    for line in lines:
        # In a code block two spaces separate a command from the explanation beside it.
        command = re.sub(r"\s*\n\s*", " ", line).split("  ")[0]
        for arguments in re.findall(rf"(?:^|[\s(]){program} ([^)|&#]*)", command):
            yield arguments.split()


def anchors(page: str) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", CODE_BLOCK.sub("", text_of(page)), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_python_examples_compile(page: str) -> None:
    for number, code in enumerate(code_blocks(page, "python")):
        compile(code, f"{page}, example {number + 1}", "exec")


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_are_closed(page: str) -> None:
    assert "```" not in CODE_BLOCK.sub("", text_of(page))


@pytest.mark.parametrize("page", PAGES)
def test_verbs_and_flags_of_the_command_line_exist(page: str) -> None:
    for verb, *arguments in calls(page, "ffq-spark"):
        if verb.startswith("<") or verb == "--help":
            continue
        command = main.commands[verb]
        flags = {flag for parameter in command.params for flag in parameter.opts}
        assert {word for word in arguments if re.match("--?[a-z]", word)} <= flags, verb


def test_the_verbs_of_the_command_line_are_in_the_readme() -> None:
    """Compare in the other direction, too, and leave out what the group itself offers."""
    assert isinstance(main, click.Group)
    assert {verb for verb, *_ in calls("README.md", "ffq-spark")} == set(main.commands)


@pytest.mark.parametrize("page", PAGES)
def test_targets_of_make_exist(page: str) -> None:
    makefile = text_of("Makefile")
    for words in calls(page, "make"):
        for target in words:
            if "=" in target:
                break
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", PAGES)
def test_options_in_examples_are_declared(page: str) -> None:
    code = "\n".join(code_blocks(page, "python"))
    names = set(re.findall(r"\.option\(\"([^\"]+)\"", code))
    assert names <= OPTIONS | OPTIONS_OF_SPARK


@pytest.mark.parametrize("page", PAGES)
def test_error_codes_and_variables_are_declared(page: str) -> None:
    codes = {kind.code for kind in vars(errors).values() if hasattr(kind, "code")}
    variables = {environment_name(name) for name in OPTIONS}
    names = set(re.findall(r"\bFFQ_[A-Z_]*[A-Z]\b", text_of(page)))
    assert names <= codes | variables


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page: str) -> None:
    text = INLINE_CODE.sub("", CODE_BLOCK.sub("", text_of(page)))
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        path = (TOP / page).parent / name if name else TOP / page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(str(path.resolve().relative_to(TOP))), target


@pytest.mark.parametrize("page", PAGES)
def test_paths_of_the_repository_exist(page: str) -> None:
    """Look at inline code that begins with a directory of the repository."""
    directories = "benchmarks|checks|conf|docs|examples|ffq_spark|jars|tests"
    for code in INLINE_CODE.findall(CODE_BLOCK.sub("", text_of(page))):
        if re.fullmatch(rf"({directories})/[\w./*-]*", code):
            assert list(TOP.glob(code)), code


def test_classes_and_functions_of_the_glossary_exist() -> None:
    source = "\n".join(path.read_text() for path in (TOP / "ffq_spark").rglob("*.py"))
    terms = re.findall(r"^\| [^|`]+ \(`(\w+)`\) \|", text_of("docs/architecture.md"), re.MULTILINE)
    assert "LogCheckpoint" in terms
    for term in terms:
        assert re.search(rf"^(class|def) {term}\b", source, re.MULTILINE), term

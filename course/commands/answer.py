"""Answer a run file in the eight steps. Exit code 1 when no layout is legal and fits."""

from __future__ import annotations

import argparse

from course.commands._output import add_run_file, json_text, question


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `course answer`."""
    add_run_file(parser, fix=True)


def run(arguments: argparse.Namespace) -> int:
    """Print the answer; 1 when there is nothing to recommend."""
    from course.answer import answer_from, gather
    from course.commands import _text

    with question(arguments) as asked:
        facts = gather(asked, arguments.fix)
        document = answer_from(facts)
        print(json_text(document) if arguments.json else _text.answer(document, asked, facts.own))
    return 0 if document["recommended"] is not None else 1

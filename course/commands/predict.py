"""Predict what the layout of a run file needs, costs and reaches. Exit code 1 when it is illegal or does not fit."""

from __future__ import annotations

import argparse

from course.commands._output import add_run_file, json_text, question


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `course predict`."""
    add_run_file(parser, fix=False)


def run(arguments: argparse.Namespace) -> int:
    """Print the prediction; 0 when the layout is legal and fits, else 1."""
    from course.commands import _text
    from course.predict import predict

    with question(arguments) as asked:
        document = predict(asked)
        print(json_text(document) if arguments.json else _text.predict(document, asked))
    return 0 if document["legal"] and document["memory"]["fits"] else 1

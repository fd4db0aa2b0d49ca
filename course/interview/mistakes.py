"""The mistakes an interview can show, each with its line; most are those of the exercises, under the same names."""

from __future__ import annotations

from course.questions.mistakes import MISTAKES as EXERCISES

__all__ = ["explain"]

OWN: dict[str, str] = {
    # 1
    "not asked": "This was left open, and everything after it depends on it: ask before you compute.",
    "premise accepted": "Something in what you were told is wrong, and you built on it.",
    "premise doubted": "What you doubt holds; the wrong doubt costs as much as a wrong belief.",
    "not cross-checked": "A number was said without a second route to it.",
    "same route twice": "The second figure is the first once more, so it checks nothing.",
    "number off": "The number is outside what an estimate on a napkin may miss by.",
    "sparse peak": "The figure with sparsity counts multiplications by zeros that are skipped; training has none.",
    "another peak": "This is not the dense peak of one device in this precision.",
    # 2
    "memory taken": "The device does not have that much memory for you.",
    "first limit missed": "Another limit comes first on one device.",
    "split before fit": "A split was chosen before it was asked what does not fit.",
    "activations forgotten": "What forward saves for backward must be held as well, and can outweigh the state.",
    # 3
    "planned what cannot fit": "All devices together cannot hold it, whatever the layout; say so, and what would "
    "change.",
    "given up early": "A layout exists that is legal and fits.",
    "smallest group missed": "A smaller model-parallel group fits, or this one is too small to.",
    "tensor by habit": "A degree was taken because the node has it, not because something asked for it.",
    "least memory for fastest": "The layout that holds least is not the one that moves least.",
    # 4
    "tensor across nodes": "Tensor ranks leave the node although another order keeps them inside.",
    "placed slowly": "Another order of the same axes makes the step clearly shorter.",
    "nodes miscounted": "Which groups leave a node follows from the order and the degrees: multiply from inside out.",
    "two-way for one-way": "The printed figure counts both directions; a device sends half of it one way.",
    "bits or a node's total": "Eight times too much: bits for bytes, or a node's total for one device.",
    "another axis sends most": "Another axis sends more bytes a step.",
    "pipeline sends most": "Stages pass one activation on, in few messages; they send least of all.",
    "placement ignored": "The same bytes take several times as long between nodes as inside.",
    # 5
    "replicas wrong": "Replicas are the devices over tensor x pipeline x context.",
    # 6
    "HFU as MFU": "Work done twice to save memory was counted as useful: that is HFU.",
    "above all published": "No published run on this device claims so much, and your layout would not reach it.",
    "implausible MFU": "For this layout and these links the claim is far off.",
    "busy for MFU": "A busy device may be waiting in a collective; its monitor does not know what is useful.",
    "goal not compared": "The verdict does not follow from the days and hours against the deadline and the budget.",
    "missed for impossible": "At full peak it could be done: it is missed, which more devices mend, not impossible.",
    # 7
    "all traffic hidden": "Not all traffic hides: what the next operation waits for extends the step.",
    "all traffic exposed": "Not all traffic is exposed: what backward outlasts costs nothing.",
    "fate missed": "An axis was called hidden or exposed, and it is the other.",
    "axis not there": "An axis was named that moves nothing in this layout.",
    "bubble hidden": "In the bubble a stage has nothing to compute, so there is nothing to hide it behind.",
    # 8
    "nothing left to measure": "Fewer than three runs compare nothing.",
    "whole space swept": "The grid is too large to measure before the decision.",
    "illegal grid": "Too much of the grid is illegal or does not fit.",
    "own layout left out": "Your own layout is not in the grid, so the sweep cannot test it.",
    "wrong thing recorded": "One of these tells nothing about a layout.",
    "too little recorded": "With so few measurements a layout that wins cannot be told from one that got lucky.",
    "stop rule missing": "Devices are not added until none are left, but while the time saved is worth the hours.",
    "no reason": "No reason was given.",
    "unanswered": "Left blank.",
}
"""Name -> what went wrong, beside those of the exercises."""


def explain(name: str) -> str:
    """The line of a mistake.

    >>> explain("sparse peak")[:24], explain("optimizer forgotten")[:13]
    ('The figure with sparsity', 'The optimizer')
    """
    return OWN.get(name) or EXERCISES[name]

"""What is asked: each question with its numbers, its right answer from the library, and the wrong ones that are known.

A step's questions stand in the module of the step's name; `registry` finds them by id, `kinds` says what a question is.
"""

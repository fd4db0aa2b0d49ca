"""`python -m course` is the `course` command."""

from __future__ import annotations

import sys

from course.cli import main

sys.exit(main())

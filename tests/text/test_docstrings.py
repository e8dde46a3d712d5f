"""Documentation strings of the three conventions as prose."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firth.text.pydoc import is_prose, read_docstring

NUMPY = """Return the sum of
    two arrays, as ``float64`` [1]_.

    .. versionadded:: 1.2
        This must not be kept as prose of the corpus.

    The *longer* description uses :func:`~numpy.add` and `numpy.ndarray`::

        the code of the block must not be kept

    Prose after the code, see `the guide <https://example.org>`_ for more.

    Parameters
    ----------
    x, y : array_like
        The arrays to be added, which
        must have the same shape.

        They may be masked.
    **kwargs
        Passed on to the function.
    out : ndarray

    Returns
    -------
    total : ndarray
        The sum of the arrays.

    See Also
    --------
    subtract : The difference of the arrays.

    Notes
    -----
    There are two cases:

    - the first of the cases,
      which goes on
    - the second of the cases

    ====== =======
    a      the row
    ====== =======
    b      of the table
    ====== =======

    .. note:: A note is kept as prose.

    References
    ----------
    .. [1] Somebody, "The title of the book", 1999.

    Examples
    --------
    Add the two of them:

    >>> print("the example")
    The output of the example must not be kept.

    That was all of it.
    """

GOOGLE = """Trains the model on the data.

    Args:
        data (list[str], optional): The texts to
            be learned from.
        *rest: Whatever is left of them.

    Returns:
        The model that was trained.

    Example::

        >>> train()

    Shape:
        - Input: of the shape N

    Back at the margin of the text.

    ```python
    This is the code of it.
    ```
    """


def test_numpy_convention() -> None:
    prose = read_docstring(NUMPY)
    assert prose.summary == "Return the sum of two arrays, as float64 [1]."
    assert prose.paragraphs == (
        "The longer description uses add and numpy.ndarray:",
        "Prose after the code, see the guide for more.",
        "The sum of the arrays.",
        "There are two cases:",
        "the first of the cases, which goes on",
        "the second of the cases",
        "A note is kept as prose.",
        "Add the two of them:",
        "That was all of it.",
    )
    assert prose.parameters == (
        ("x, y", "The arrays to be added, which must have the same shape. They may be masked."),
        ("kwargs", "Passed on to the function."),
    )


def test_google_convention() -> None:
    prose = read_docstring(GOOGLE)
    assert prose.summary == "Trains the model on the data."
    assert prose.paragraphs == ("The model that was trained.", "Back at the margin of the text.")
    assert prose.parameters == (
        ("data", "The texts to be learned from."),
        ("rest", "Whatever is left of them."),
    )


def test_rest_convention() -> None:
    prose = read_docstring(
        """Opens the file and reads it.

        :param str path: the path to the file,
            relative or absolute
        :type path: str or bytes or the like
        :returns: what was in the file
        """
    )
    assert prose.paragraphs == ("what was in the file",)
    assert prose.parameters == (("path", "the path to the file, relative or absolute"),)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Examples",
        "x = y = z of the",
        "import the module",
        "%(description)s of the thing",
        "a\x00b of the file",
        "1 2 3 of 4",
    ],
)
def test_not_prose(line: str) -> None:
    assert not is_prose(line)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab .:->`*|=\n\t\\[]_+{}%1", max_size=200))
def test_anything_can_be_read(doc: str) -> None:
    prose = read_docstring(doc)
    lines = [*prose.paragraphs, *(description for _, description in prose.parameters)]
    assert all(line == " ".join(line.split()) and is_prose(line) for line in lines)
    assert not any(line.startswith(">>>") for line in lines)

"""firth mix: several language models as one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from firth.cli.console import EncodingOption, FieldOption, JsonFlag, print_fields, show, verb


@verb
def mix(
    models: Annotated[list[Path], typer.Argument(help="The folders of language models over the same tokens.")],
    valid: Annotated[str, typer.Option("--valid", help="Held-out text, which decides how much each model weighs.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to make.")],
    field: FieldOption = "text",
    encoding: EncodingOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Language models of any family, mixed: each with the weight that makes held-out text likeliest.

    Example: firth mix kn5-cache lstm --valid valid.txt -o both
    """
    from firth.artifact.folder import artifact_info
    from firth.fit.mixing import mix as mix_models
    from firth.recipes.values import flatten

    mix_models(models, valid, out, field=field, encoding=encoding)
    facts = artifact_info(out)
    show(as_json, facts, lambda: print_fields(flatten(facts["metrics"])))

"""Texts that users see who have no checkout."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def shown_texts() -> dict[Path, str]:
    """Strings of the package, and the files that deployments take from `deploy`, without comments."""
    deployed = [path for path in (ROOT / "deploy").rglob("*") if path.suffix in {".yml", ".yaml", ".json", ".service"}]
    texts = {path: re.sub(r"^\s*#.*", "", path.read_text("utf-8"), flags=re.MULTILINE) for path in deployed}
    return texts | {path: "\n".join(strings_of(path)) for path in (ROOT / "ingest").rglob("*.py")}


def strings_of(module: Path) -> list[str]:
    """The strings of a module, except docstrings, which only contributors read. Those of the command line are help texts."""
    tree = ast.parse(module.read_text("utf-8"))
    are_help = module.is_relative_to(ROOT / "ingest" / "cli")
    documented = (ast.Module, *(() if are_help else (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)))
    docstrings = {
        id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) if ast.get_docstring(node)
    }
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) if isinstance(node.value, str)]
    return [node.value for node in strings if id(node) not in docstrings]

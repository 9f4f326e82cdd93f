"""The pages of the API reference, from the public names: those of `linverse` itself and `__all__` of each of its modules.

Read from the source, not imported: a page of `linverse.interop.deepinv` needs no deepinv. Every object has one place, its module's page.
"""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"

# the pages: a module each, in the order in which people meet them; the modules behind `linverse.load` and `linverse.plot` are added whole
MODULES = (
    "posterior",
    "operator_posterior",
    "any_posterior",
    "restoration",
    "measurement",
    "degradations",
    "covariance",
    "energy",
    "store.hub",
    "data",
    "report.restoration",
    "blind",
    "sampling",
    "typicality",
    "information",
    "code_length",
    "metrics",
    "baselines",
    "evaluation",
    "experiments",
    "analytic",
    "interop.deepinv",
    "interop.azula",
    "interop.denoisers",
    "units",
)

# what a class has from its base and people look for on its own page
INHERITED = {name: ["log_prob", "rank"] for name in ("Posterior", "OperatorPosterior")}


def tree(module: str) -> ast.Module:
    """The syntax of `linverse.module`, a file or a package."""
    path = SOURCE.joinpath("linverse", *filter(None, module.split(".")))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text())


def assigned(module: ast.Module, name: str) -> object:
    """The value of a literal at the top of a module, or None."""
    for node in module.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            return ast.literal_eval(node.value)
    return None


def public_names(module: str) -> dict[str, str]:
    """Name → where it is defined (`linverse.blind.search.Search`), of `__all__` or of all functions and classes without an underscore."""
    syntax, full = tree(module), f"linverse.{module}"
    imported = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in syntax.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("linverse")
        for alias in node.names
    }
    defined = [n.name for n in syntax.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name[0] != "_"]
    listed = assigned(syntax, "__all__")
    first = assigned(tree(""), "__all__")  # what people came for
    assert isinstance(first, list)
    names = sorted(listed, key=str.lower) if isinstance(listed, list) else sorted(defined, key=lambda n: n not in first)
    return {name: imported.get(name, f"{full}.{name}") for name in names}


def page_of(module: str) -> str:
    """Its file."""
    return f"reference/{module}.md"


def module_page(module: str) -> str:
    """The docstring of the module and everything public in it."""
    lines = [f"# linverse.{module}", "", f"::: linverse.{module}", "    options:", "      members: false"]
    lines += ["      show_root_heading: false", ""]
    for name, path in public_names(module).items():
        lines += [f"::: {path}", "    options:", "      heading_level: 2", f'      heading: "{name}"']
        lines += [f"      inherited_members: {INHERITED[name]}", ""] if name in INHERITED else [""]
    return "\n".join(lines)


def index_page() -> str:
    """The names that `import linverse as lv` gives, and the modules."""
    front = tree("")
    names, homes = assigned(front, "__all__"), assigned(front, "_HOMES")
    assert isinstance(names, list)
    assert isinstance(homes, dict)
    home = {name: module for module, members in homes.items() for name in members}
    lines = ["# Reference", "", "## The names of `import linverse as lv`", "", "| name | |", "|---|---|"]
    for name in names:
        module = home[name]
        path = public_names(module.split(".")[0] if module.startswith("data.") else module)[name]
        lines.append(f"| [`lv.{name}`][{path}] | {summary(path)} |")
    lines += ["", "## Modules", "", "| module | |", "|---|---|"]
    for module in MODULES:
        lines.append(f"| [`linverse.{module}`]({module}.md) | {first_line(ast.get_docstring(tree(module)))} |")
    return "\n".join(lines)


def summary(path: str) -> str:
    """The first line of the docstring of an object."""
    module, name = path.removeprefix("linverse.").rsplit(".", 1)
    found = [n for n in tree(module).body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == name]
    return first_line(ast.get_docstring(found[0])) if found else ""


def first_line(text: str | None) -> str:
    """Of a docstring, fit for a table."""
    return (text or "").splitlines()[0].replace("|", "\\|") if text else ""

"""Which module imports which: no circles, so that each can be read without those above it."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp

ALLOWED = {
    # What a notebook shows or calls of a value is a method of it, and imported when it is called.
    ("workbench.runs.run", "workbench.runs.answers"),
    ("workbench.runs.run", "workbench.runs.facts"),
    ("workbench.runs.answers", "workbench.runs.store"),
    ("workbench.runs.comparing.table", "workbench.runs.comparing.html"),
    ("workbench.genotypes.pca", "workbench.genotypes.projection"),
}


def test_no_module_imports_itself_by_others_not_even_for_types() -> None:
    graph = grimp.build_graph("workbench", cache_dir=None, exclude_type_checking_imports=False)
    # The package itself only points at its public names.
    imports = {
        module: {
            other
            for other in graph.find_modules_directly_imported_by(module)
            if other not in ("workbench", module) and (module, other) not in ALLOWED
        }
        for module in graph.modules - {"workbench"}
    }
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as err:
        circle = " imports ".join(reversed(err.args[1]))
        raise AssertionError(f"{circle}. Move what both need below both.") from None

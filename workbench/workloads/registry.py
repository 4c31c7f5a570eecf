"""Workloads as templates of runs: each draws its form, checks input, builds its graph, and checks the answer."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dask.utils import parse_bytes

from workbench import formats
from workbench.errors import (
    BadInputError,
    NotFoundError,
    WorkbenchError,
    install,
    printable,
    quoted,
    said,
)
from workbench.redaction import complaint
from workbench.storage.places import check_protocols
from workbench.threads import ended_after
from workbench.workloads import forms, presets, signatures
from workbench.workloads.code import computing, on_cluster, plain_source
from workbench.workloads.declaring import called, declared
from workbench.workloads.fields import TITLES, Replace, Save
from workbench.workloads.presets import Preset
from workbench.workloads.values import BadParameterError, Check, Function, Needs, Parameters, Surroundings

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

    from workbench.workloads.values import Alone

_ANSWERING = 120.0
"""Time limit in seconds to inspect what parameters name, such as a file."""

_UNKNOWN = Needs(known=False, sentence="How much memory it needs is known once it runs.")

Resolution = tuple[dict[str, Any], tuple[str, ...]]

_SAVING: Mapping[str, tuple[Any, Any]] = {"save": (Save | None, None), "replace": (Replace, False)}
"""Additional form fields of workloads that answer with arrays."""


def _imports_nothing(_: Mapping[str, Any]) -> Mapping[str, str]:
    # No lambda: a template of a user's function is pickled by the process that opens its file.
    return {}


@dataclass(frozen=True)
class Template:
    """A workload that can be run: a plain function of Dask code, and facts about it.

    `compute` runs one from `validate`'s parameters to the check, and shows the steps to run it otherwise.
    """

    function: Callable[..., Any]
    returns: tuple[str, ...]
    """Names of the function's results, in its order."""
    small: tuple[str, ...]
    """Names of results that come back from the cluster; the others stay there."""
    summary_of: Callable[[Mapping[str, Any]], dict[str, Any]] = field(repr=False)
    arrays_of: Callable[[Mapping[str, Any]], xr.Dataset] | None = field(default=None, repr=False)
    """Function from the results to the arrays of the answer; None for workloads that answer with numbers."""
    extra: Mapping[str, tuple[Any, Any]] = field(default_factory=dict, repr=False)
    """Form fields, with type and default, that only the check takes."""
    reports_bandwidth: bool = False
    """True if its runs report the bandwidth between the workers."""
    presets: tuple[Preset, ...] = ()
    """Parameters that have been used before."""
    values: tuple[str, ...] = ()
    """Names of results that are values and no Dask collections: the function computes them, or returns None."""
    computes: bool = False
    """True if the function may compute something that `values` doesn't list."""
    on_gpus: tuple[str, str] | None = None
    """Package that it needs on GPUs in addition to CuPy, and the extra that brings it; None where it needs none."""
    imports: Callable[[Mapping[str, Any]], Mapping[str, str]] = field(default=_imports_nothing, repr=False)
    """Function from resolved parameters to the modules that tasks import, of `workbench.remote.MODULES`.

    The value of each is another choice if workers can't import it, or ''.
    """
    by_processors: bool = False
    """True if processors work on its blocks even where workers have GPUs, which is then no fault."""
    referring: tuple[str, ...] = ()
    """Parameters that are stored as resolved, as paths are: another run may be the last one tomorrow."""
    alone: Alone | None = field(default=None, repr=False)
    """The same workload by NumPy or CuPy without Dask, for a row next to clusters; None if there is none."""

    @property
    def name(self) -> str:
        """The function's name, in snake_case."""
        return self.function.__name__

    @property
    def title(self) -> str:
        """Its name in lists."""
        return declared(self.function).title or self.name

    @property
    def reference(self) -> str:
        """Reference by which `template` finds it from any folder."""
        return self.name

    @property
    def pinned(self) -> Function | None:
        """Facts that a record stores about a user's function; None for ours."""
        return None

    @property
    def origin(self) -> str:
        """Short description of its origin."""
        return "dask-workbench"

    @cached_property
    def paths(self) -> tuple[str, ...]:
        """Parameters that name a file or a folder. Without any of them, no user file is opened."""
        return tuple(name for name, field in self.schema()["properties"].items() if field.get("path"))

    @property
    def summary(self) -> str:
        """First line of the help."""
        return self.help.splitlines()[0]

    @property
    def help(self) -> str:
        """The function's docstring."""
        return inspect.getdoc(self.function) or ""

    @property
    def source(self) -> str:
        """The function as plain Dask code, without the annotations that make the form."""
        return plain_source(self.function)

    def lacking(self, *, on_gpu: bool) -> str | None:
        """Return why it can't run on processors or GPUs with the installed packages; None if it can."""
        if not on_gpu or self.on_gpus is None or find_spec(self.on_gpus[0]) is not None:
            return None
        package, extra = self.on_gpus
        return (
            f"On GPUs {self.name} needs {package}, which isn't installed: install the extra {extra} "
            f"({install(extra)}) and start the cluster anew."
        )

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the form: properties with title, description, default, bounds and examples."""
        # A copy, as forms are rebuilt at each key and may change it.
        return deepcopy(self._form)

    @property
    def offered(self) -> tuple[Preset, ...]:
        """Its presets, and the user's own."""
        return (*self.presets, *self._own_presets()[0].values())

    @property
    def wrong_presets(self) -> tuple[str, ...]:
        """Messages about presets of one's own that can't be read."""
        return self._own_presets()[1]

    def preset(self, name: str) -> Preset:
        """Return one of the presets. NotFoundError lists them."""
        mine, wrong = self._own_presets()
        return presets.find(self.name, (*self.presets, *mine.values()), name, wrong)

    def _own_presets(self) -> tuple[dict[str, Preset], tuple[str, ...]]:
        if not self._takes_preset:
            return {}, ()
        mine, wrong = presets.own((self.name, self.reference))
        declared = {each.name for each in self.presets}
        return {name: each for name, each in mine.items() if name not in declared}, wrong

    @property
    def _takes_preset(self) -> bool:
        """True if `preset` names a preset: a user's function may have a parameter of that name."""
        return bool(self.presets) or "preset" not in self._form["properties"]

    def spelt_out(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters with a user's preset replaced by its values: another process may not have it.

        Raises BadParameterError if there is no such preset.
        """
        name = raw.get("preset")
        if not isinstance(name, str) or not self._takes_preset or name in (each.name for each in self.presets):
            return raw
        if forms.is_nothing(name):
            return {key: value for key, value in raw.items() if key != "preset"}
        try:
            preset = self.preset(name)
        except NotFoundError as err:
            raise BadParameterError(str(err), "preset") from err
        if raw.get("scale") not in (None, ""):
            raise BadParameterError(
                f"scale of {self.name}: a preset of your own, {name}, has none. Leave it out.", "scale"
            )
        return presets.filled(self.name, preset, None, raw)

    def validate(self, raw: Mapping[str, Any], **cluster: Any) -> Parameters:
        """Validate parameters, which may be text from a command line, and resolve shape and blocks.

        Facts about the `cluster` are `Surroundings`: memory, threads and so on.

        Raises
        ------
        BadParameterError
            The message has the parameter, the given value and the allowed ones.
        """
        mine, raw = raw.get("preset"), self.spelt_out(raw)
        values = forms.read(self._form, raw)
        preset, scale = (values.pop("preset"), values.pop("scale")) if self.presets else (None, None)
        if preset is not None or scale is not None:
            chosen_preset = None if preset is None else self.preset(preset)
            values = forms.read(self._form, presets.filled(self.name, chosen_preset, scale, raw))
            del values["preset"], values["scale"]
        for name, value in values.items():
            if (why := complaint(name, value)) is not None:
                raise BadParameterError(why, name)
        saving = {name: values.pop(name) for name in self._saving}
        around = Surroundings(**{name: fact for name, fact in cluster.items() if fact is not None})
        fields = self._form["properties"]
        given = {name: forms.from_text(value, fields[name]) for name, value in raw.items()}
        for name in self.paths:
            if isinstance(url := (values | saving).get(name), str):
                check_protocols(url)
        at = f" at {path}" if isinstance(path := values.get("path"), str) else ""
        with ended_after(
            _ANSWERING, f"No answer within {formats.duration(_ANSWERING)}: the server or disk{at} doesn't reply."
        ):
            resolved, notes = self._prepared(values, given, around)
        if saving.get("save") is not None:
            saving["save"] = self._target(resolved, **saving)
        # Store absolute paths: the run's process has another working folder.
        given |= {name: (saving | resolved)[name] for name in given.keys() & (*self.paths, *self.referring)}
        return Parameters(
            workload=self.name,
            given=given,
            resolved=_as_json(resolved),
            notes=notes,
            preset=preset if "preset" in raw or not self._takes_preset else mine,
            threads_per_worker=around.threads_per_worker,
            **saving,
        )

    @property
    def declares(self) -> tuple[str, ...]:
        """Names of the functions that are declared with it: prepare, needs, check, code."""
        return declared(self.function).functions

    def _ask(self, which: str, parameters: Mapping[str, Any], **around: Any) -> Any:
        """Call a function that is declared with it."""
        if which == "prepare":
            parameters = signatures.arguments(self._form, parameters)
        return called(getattr(declared(self.function), which), parameters, **around)

    def _prepared(self, values: dict[str, Any], given: Mapping[str, Any], around: Surroundings) -> Resolution:
        """Return values as `prepare` changes them, with its messages."""
        notes: tuple[Any, ...] = ()
        if "prepare" in self.declares:
            answer = self._ask("prepare", values, given=given, cluster=around)
            changed, messages = answer if isinstance(answer, tuple | list) and len(answer) == 2 else (answer, ())
            notes = (messages,) if isinstance(messages, str) else tuple(messages)
            if not isinstance(changed, dict) or not all(isinstance(note, str) for note in notes):
                raise BadInputError(
                    f"prepare of {self._form['title']} returned {quoted(answer)}. Let it return parameters, such as "
                    "{'n': 1000}, or these and sentences."
                )
            values = self._changed(values, changed)
        fields = self._form["properties"]
        resolved = {name: value for name, value in values.items() if not _is_replaced(fields.get(name, {}), values)}
        return resolved, tuple(map(printable, notes))

    def _changed(self, values: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
        """Return values with those that `prepare` changed, and its facts for estimates and checks."""
        return values | changed

    def needs(self, parameters: Parameters) -> Needs:
        """Estimate the data moved and the memory needed; unknown if not declared."""
        if "needs" not in self.declares:
            return _UNKNOWN
        answer = self._ask("needs", parameters.resolved, threads_per_worker=parameters.threads_per_worker)
        if isinstance(answer, Needs):
            return answer
        try:
            # The answer of another process is JSON.
            return Needs.model_validate(answer) if isinstance(answer, dict) else _holding(int(parse_bytes(answer)))
        except (TypeError, ValueError) as err:
            raise BadInputError(
                f"needs of {self.name} returned {quoted(answer)}. Let it return bytes, a text such as '2GiB', or "
                "workbench.Needs."
            ) from err

    def build(self, parameters: Parameters) -> dict[str, Any]:
        """Return Dask collections of the answer by name, and those of its `values` that were computed at once."""
        from workbench.linalg import AccuracyWarning

        with warnings.catch_warnings():
            # The check reports an accuracy that isn't reached.
            warnings.simplefilter("ignore", AccuracyWarning)
            result = self.function(**self._arguments(parameters))
        return dict(zip(self.returns, result if isinstance(result, tuple) else (result,), strict=True))

    def collections(self, built: Mapping[str, Any]) -> dict[str, Any]:
        """Return those of the results that are Dask collections."""
        return {name: found for name, found in built.items() if name not in self.values}

    def gathered(self, collections: Mapping[str, Any]) -> tuple[str, ...]:
        """Return names of the persisted results that come back as values; the others stay on the cluster."""
        return self.small

    def measured(self, built: Mapping[str, Any], threads_per_worker: int) -> Needs | None:
        """Return its needs by its graph, if they were unknown before."""
        return None

    def remarks(self, results: Mapping[str, Any]) -> tuple[str, ...]:
        """Return messages about parts of the answer that aren't stored."""
        return ()

    def summarise(self, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer as JSON: `value` of a sum or mean, `singular_values` of an SVD."""
        return self.summary_of(results)

    def arrays(self, results: Mapping[str, Any], resolved: Mapping[str, Any] | None = None) -> xr.Dataset | None:
        """Return the arrays of the answer, which may be on the cluster; None for an answer without arrays."""
        return None if self.arrays_of is None else self.arrays_of({**(resolved or {}), **results})

    def check(self, parameters: Parameters, results: Mapping[str, Any], client: Client | None = None) -> Check | None:
        """Compare the answer with the expected one; None if no check is declared.

        Parameters
        ----------
        results
            Everything from `build`: values for the names in `gathered`, persisted collections for the rest.
        client
            Client that computes the check's own graph; None for Dask's current scheduler.
        """
        judge = declared(self.function).check
        if judge is None:
            return None
        whose = f"{getattr(judge, '__name__', 'its check')} of {self.origin}"
        try:
            verdict = called(judge, *self._checked(parameters, results), client=client)
        except AssertionError as err:
            return Check(passed=False, what=f"{whose}: {said(err) or 'its assertion failed'}.".replace("..", "."))
        if isinstance(verdict, Check):
            return verdict
        if isinstance(verdict, tuple) and len(verdict) in (2, 3):
            rounding = float(verdict[2]) if len(verdict) == 3 else None
            what = printable(f"{whose}: {verdict[1]}.").replace("..", ".")
            return Check(passed=bool(verdict[0]), what=what, rounding=rounding)
        return Check(passed=bool(verdict), what=f"{whose} says so.")

    def _checked(self, parameters: Parameters, results: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
        """Return the parameters and the answer as `check` gets them."""
        return parameters.resolved, results

    def compute(self, parameters: Parameters, client: Client | None = None) -> tuple[dict[str, Any], Check | None]:
        """Build, compute, summarize and check, and wait for it."""
        import dask

        built = self.build(parameters)
        collections = self.collections(built)
        persist = dask.persist if client is None else lambda *parts: client.persist(list(parts))
        results = built | dict(zip(collections, persist(*collections.values()) if collections else (), strict=True))
        results |= {name: on_host(results[name]).compute() for name in self.gathered(collections)}
        return self.summarise(results), self.check(parameters, results, client)

    def cell(self, parameters: Parameters, cluster: str | None = None, *, on_gpu: bool = False) -> str:
        """Return a notebook cell that does the same with Dask or CuPy, on the named cluster if any."""
        if "code" not in self.declares:
            return self._plain_cell(parameters, cluster, on_gpu)
        text = self._ask("code", parameters.resolved, on_gpu=on_gpu)
        if not isinstance(text, str):
            raise BadInputError(f"code of {self.name} returned {quoted(text)}. Let it return the text of a cell.")
        return on_cluster(text, cluster, on_gpu=on_gpu)

    def _plain_cell(self, parameters: Parameters, cluster: str | None, on_gpu: bool) -> str:
        """Return a cell with the text of the function and a call."""
        code = computing(self.function, self._arguments(parameters), self.returns, self.values, on_gpu)
        return on_cluster(code, cluster, on_gpu=on_gpu)

    def _arguments(self, parameters: Parameters) -> dict[str, Any]:
        return arguments(self.function, parameters.resolved)

    @property
    def has_arrays(self) -> bool:
        """True if its answer has arrays, which can be saved."""
        return self.arrays_of is not None

    @property
    def _saving(self) -> Mapping[str, tuple[Any, Any]]:
        return _SAVING if self.has_arrays else {}

    def _target(self, resolved: Mapping[str, Any], save: str, replace: bool) -> str:
        """Return the target where the answer is saved; BadParameterError if that is impossible."""
        from workbench.storage.places import matches, overlap
        from workbench.storage.targets import target

        try:
            to = target(save, replace=replace)
        except WorkbenchError as err:
            raise BadParameterError(f"save of {self.name}: {err}", "save") from err
        collections = [name for name in self.returns if name not in self.values]
        if to.kind == "npy" and len(collections) > 1:
            raise BadParameterError(
                f"save of {self.name}: {to} would hold one array, and the answer has {', '.join(collections)}. Give "
                "a name that ends with .zarr, .npz or .nc.",
                "save",
            )
        for name, value in resolved.items():
            # Any text parameter may name a file that is read, in a user's function as well.
            read = [] if not isinstance(value, str) else [value] if "://" in value else matches(value)
            if any(overlap(each, str(to)) for each in read):
                raise BadParameterError(
                    f"save of {self.name} is {to}, and {name} reads {value}: it would be written over while it is "
                    "read. Give another path.",
                    "save",
                )
        return str(to)

    @cached_property
    def _form(self) -> signatures.Schema:
        of_presets, added = presets.fields(self.presets), {**self.extra, **self._saving}
        before, after = (signatures.of_fields(each, self.name, TITLES) for each in (of_presets, added))
        return signatures.joined(self.name, before, signatures.schema(self.function, TITLES), after)


def _is_replaced(field: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Return whether the function doesn't take a field: a size, or one that applies only if another isn't given."""
    only = field.get("only") or ""
    return field.get("only_asked", False) or (only.startswith("!") and not forms.applies(only, values))


def _holding(n_bytes: int) -> Needs:
    """Return the needs of a function that holds so many bytes, with an unknown number of passes."""
    sentence = f"Needs {formats.size(n_bytes)} of all workers together, as its own function says."
    return Needs(input_bytes=n_bytes, passes=0, held_total=n_bytes, kept=n_bytes, sentence=sentence)


def on_host(collection: Any) -> Any:
    """Return a collection with its GPU blocks moved to the host, if its kind may lie there."""
    # Ask the class: a delayed value claims to have every attribute.
    if not hasattr(type(collection), "to_backend"):
        return collection
    if not hasattr(type(collection), "to_dask_array"):
        return collection.to_backend("numpy")
    # A reduced column, such as its sum, is a scalar without a backend.
    return collection.to_backend("pandas") if collection.ndim else collection


def arguments(function: Callable[..., Any], resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the parameters that a function takes, from their JSON: lists are tuples again."""
    accepted = inspect.signature(function).parameters
    values = {name: value for name, value in resolved.items() if name in accepted}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _as_json(resolved: Mapping[str, Any]) -> dict[str, Any]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in resolved.items()}

"""Options of a command from the fields of a type, which `ingest.lab.described` describes."""

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import Parameter, signature
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from ingest.cli.options import option, with_parameters
from ingest.lab.described import choices

_TYPES = (bool, int, float, str)
"""Types that an option can have. Options of other types are texts."""


def with_fields_of(
    of: type, make: Callable[..., Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command that takes a value of a type, so that it has an option for each field in place of that parameter.

    Args:
        of: a dataclass or Struct of which all fields have defaults. Fields that are not described have no option.
        make: makes the value from its fields. Defaults to the type.
    """

    def decorate(run: Callable[..., None]) -> Callable[..., None]:
        given = signature(run).parameters
        [slot] = [name for name, parameter in given.items() if parameter.annotation is of]
        options = list(_options(of))

        @wraps(run)
        def command(**values: Any) -> None:
            fields = {each.name: values.pop(each.name) for each in options if each.name in values}
            run(**values, **{slot: (make or of)(**fields)})

        parameters = [each for name in given for each in (options if name == slot else [given[name]])]
        return with_parameters(command, parameters)

    return decorate


def _options(of: type) -> Iterator[Parameter]:
    usual = of()
    for name, hint in get_type_hints(of, include_extras=True).items():
        kind, metas = _parts(hint)
        if not metas:
            continue
        settings = {
            setting: limit
            for setting, bound in (("min", "ge"), ("max", "le"))
            for meta in metas
            if (limit := getattr(meta, bound)) is not None
        }
        if values := choices(kind):
            settings["metavar"] = "|".join(values)
        settings |= metas[-1].extra or {}
        names = settings.pop("names", ())
        info = option(settings.pop("panel"), metas[-1].description or "", *names, **settings)
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=getattr(usual, name), annotation=Annotated[kind, info])


def _parts(hint: Any) -> tuple[Any, list[msgspec.Meta]]:
    """The type of an option, and the metadata of the field."""
    if get_origin(hint) is Annotated:
        kind, metas = _parts(hint.__origin__)
        return kind, [*metas, *hint.__metadata__]
    if get_origin(hint) in {Union, UnionType}:
        kind, metas = _parts(get_args(hint)[0])
        return kind | None, metas
    return (hint if hint in _TYPES or get_origin(hint) is Literal else str), []

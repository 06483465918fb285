"""Between calls and bytes: what a task's parameters are, how they are written, how they come back.

The only importer of the compiled codec. Arguments whose annotation is plain (what msgpack has itself, or none at all)
are written strictly in compiled code; the others are rich (dates, UUIDs, sets, dataclasses ...): msgspec writes them
and reads them back as annotated. At the worker every argument is read by the type of its parameter.
"""
from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import msgspec.inspect

from fastq.errors import ConfigError, PayloadError
from fastq_ext.canonical import DigestKey, Signature, digest_named, digest_text
from fastq_ext.message import EncodeError, Frame, Message, Packer, Template, new_uid

__all__ = [
    "DigestKey",
    "EncodeError",
    "Frame",
    "Message",
    "Packer",
    "Parameter",
    "PayloadDecoder",
    "Signature",
    "TaskSignature",
    "Template",
    "digest_named",
    "digest_text",
    "encode_plain",
    "new_uid",
    "payload_error",
    "read_signature",
]

encode_plain: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode
_Decode = Callable[[Any], Any]

_Kind = Literal["positional", "positional_or_keyword", "var_positional", "keyword", "var_keyword"]
_KINDS: dict[Any, _Kind] = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "positional_or_keyword",
    inspect.Parameter.VAR_POSITIONAL: "var_positional",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_KEYWORD: "var_keyword",
}
_STARS = {"var_positional": "*", "var_keyword": "**"}
_SCALARS = (str, int, float, bool, bytes, type(None))


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a task. `type` is what its arguments are read as; `rich` tells that msgspec writes them."""

    name: str
    kind: _Kind
    default: object
    type: Any
    rich: bool


class TaskSignature:
    """What a task takes: made once, at registration."""

    __slots__ = (
        "_inspected",
        "_least",
        "_most",
        "_needs",
        "_takes",
        "canonical",
        "decoder",
        "parameters",
        "rich",
        "starred",
        "task",
    )

    def __init__(self, task: str, parameters: Sequence[Parameter], inspected: inspect.Signature) -> None:
        self.task = task
        self._inspected = inspected
        self.parameters = tuple(parameters)
        self.canonical = Signature([(p.name, p.kind, p.default) for p in parameters])
        self.decoder = PayloadDecoder(task, parameters, self.canonical)
        self.starred = tuple(_STARS.get(p.kind, "") + p.name for p in _with_bare_star(parameters))
        self.rich = frozenset(p.name for p in parameters if p.rich)
        positional = [p for p in parameters if p.kind in ("positional", "positional_or_keyword")]
        self._least = sum(p.default is Signature.REQUIRED for p in positional)
        self._most = len(positional)
        if any(p.kind == "var_positional" for p in parameters):
            self._most = 1 << 31
        if any(p.kind == "keyword" and p.default is Signature.REQUIRED for p in parameters):
            self._least = 1 << 31  # a call without keywords never fits
        named = [p for p in parameters if p.kind in ("positional", "positional_or_keyword", "keyword")]
        self._takes = frozenset(p.name for p in named if p.kind != "positional")
        self._needs = frozenset(p.name for p in named if p.default is Signature.REQUIRED)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise PayloadError when the function cannot be called so."""
        if kwargs or not self._least <= len(args) <= self._most:
            try:
                self.canonical.bind(args, kwargs)
            except TypeError as error:
                raise PayloadError(f"{self.task}: {error}") from None

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call as the function would get it, its defaults filled in. Raises PayloadError."""
        if not kwargs and len(args) == len(self.parameters) == self._most:
            return args, kwargs
        try:
            bound = self._inspected.bind(*args, **kwargs)
        except TypeError as error:
            raise PayloadError(f"{self.task}: {error}") from None
        bound.apply_defaults()
        return bound.args, bound.kwargs

    def template(self, **options: Any) -> Template:
        """A template of this task's messages; `options` are those of `Template`."""
        return Template(
            self.task,
            parameters=self.starred,
            rich=self.rich,
            rich_encode=_encode_rich,
            least=self._least,
            most=self._most,
            takes=self._takes,
            needs=self._needs,
            check=self.check,
            **options,
        )


def _with_bare_star(parameters: Sequence[Parameter]) -> Iterator[Parameter]:
    """The parameters, with a nameless `*` before keyword-only ones that follow no `*rest`."""
    starred = False
    for parameter in parameters:
        if parameter.kind == "var_positional":
            starred = True
        elif parameter.kind == "keyword" and not starred:
            starred = True
            yield Parameter("", "var_positional", None, Any, False)
        yield parameter


def payload_error(task: str, error: EncodeError) -> PayloadError:
    """What the user gets to see of an argument that cannot be encoded."""
    return PayloadError(f"{task}: {error}", path=error.path)


# --- what a function takes


def read_signature(task: str, function: Callable[..., Any]) -> TaskSignature:
    """Read a function's parameters. Raises ConfigError for an annotation that cannot be resolved or decoded."""
    hints = _resolved_annotations(task, function)
    inspected = inspect.signature(function)
    found = []
    for parameter in inspected.parameters.values():
        default = Signature.REQUIRED if parameter.default is inspect.Parameter.empty else parameter.default
        kind = _KINDS[parameter.kind]
        hint = hints.get(parameter.name, Any)
        if default is None:
            hint = typing.Optional[hint]  # noqa: UP045  # a hint need not know `|`
        rich = not is_plain(hint)
        found.append(Parameter(parameter.name, kind, default, _decodable(task, parameter.name, hint, rich), rich))
    return TaskSignature(task, found, inspected)


def _resolved_annotations(task: str, function: Callable[..., Any]) -> dict[str, Any]:
    function = inspect.unwrap(function)
    # The return annotation may name what exists for type checkers only; it is not needed.
    annotations = {name: hint for name, hint in getattr(function, "__annotations__", {}).items() if name != "return"}
    holder = types.SimpleNamespace(__annotations__=annotations)
    scope = dict(getattr(function, "__globals__", {}))
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    try:
        return typing.get_type_hints(holder, scope, include_extras=True)
    except NameError as error:
        raise ConfigError(
            f"task {task!r}: an annotation cannot be resolved: {error}; annotations are read at registration, so what"
            " they name must exist then (not only for type checkers) and stand at module level"
        ) from None
    except Exception as error:
        raise ConfigError(f"task {task!r}: an annotation cannot be read: {error}") from error


def is_plain(hint: Any) -> bool:
    """Whether values of this type come back from msgpack as they were, without being told their type."""
    if hint is Any or hint is object or hint in (list, dict, *_SCALARS) or hint is None:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return is_plain(arguments[0])
    if origin is Literal:
        return all(type(value) in _SCALARS for value in arguments)
    if origin in (list, dict, typing.Union, types.UnionType):
        return all(map(is_plain, arguments))
    return False


def _decodable(task: str, name: str, hint: Any, rich: bool) -> Any:
    """The type to decode by: the hint itself, or Any for a plain one that msgspec cannot tell apart (`str | bytes`)."""
    try:
        msgspec.msgpack.Decoder(hint)
        stranger = _stranger(msgspec.inspect.type_info(hint), set()) if rich else None
    except Exception as error:
        if not rich:
            return Any
        raise ConfigError(f"task {task!r}: parameter {name!r} cannot be decoded as annotated: {error}") from error
    if stranger is not None:
        raise ConfigError(
            f"task {task!r}: parameter {name!r} cannot be decoded as annotated: {stranger!r} is neither plain data nor"
            " a date, time, UUID, Decimal, Enum, set, tuple, NamedTuple, TypedDict, dataclass or Struct"
        )
    return hint


def _stranger(info: Any, seen: set[int]) -> Any:
    """The first class within a type that msgspec does not know, else None."""
    if id(info) in seen:
        return None
    seen.add(id(info))
    if isinstance(info, msgspec.inspect.CustomType):
        return None if info.cls is object else info.cls
    if not isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
        return None
    for field in info.__struct_fields__:
        value = getattr(info, field)
        for part in value if isinstance(value, tuple) else (value,):
            if (stranger := _stranger(part, seen)) is not None:
                return stranger
    return None


def _encode_rich(value: object) -> bytes:
    try:
        return encode_plain(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise TypeError(str(error)) from error


# --- what the worker reads


class PayloadDecoder:
    """Reads a payload back into the arguments of its task, each by the type of its parameter.

    A call with positional arguments only is read in one go, by a decoder made for their number. Keywords, arguments of
    `*rest`, and more than 15 arguments are left raw by it and then read one by one.
    """

    __slots__ = ("_extra", "_fits", "_positional", "_readers", "_rest", "_signature", "_takes", "_task", "_whole")

    def __init__(self, task: str, parameters: Sequence[Parameter], signature: Signature) -> None:
        by_kind: dict[str, list[Parameter]] = {}
        for parameter in parameters:
            by_kind.setdefault(parameter.kind, []).append(parameter)
        either, keyword = by_kind.get("positional_or_keyword", []), by_kind.get("keyword", [])
        self._task = task
        self._signature = signature
        self._positional = [*by_kind.get("positional", []), *either]
        self._takes = {p.name: p for p in (*either, *keyword)}
        self._rest = by_kind.get("var_positional", [None])[0]
        self._extra = by_kind.get("var_keyword", [None])[0]
        least = sum(p.default is Signature.REQUIRED for p in self._positional)
        without_keyword = all(p.default is not Signature.REQUIRED for p in keyword)
        # For each number of positional arguments: whether they are enough without any keyword.
        self._fits = [without_keyword and count >= least for count in range(len(self._positional) + 1)]
        # By the first two bytes of a payload: an array of two, and an array of up to 15 positional arguments.
        self._whole = {bytes((0x92, 0x90 + count)): self._decoder(count) for count in range(min(len(self._fits), 16))}
        self._readers: dict[str, _Decode] = {}

    def decode(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments and keyword arguments. Raises PayloadError when they do not fit the task, naming the path."""
        try:
            decode = self._whole.get(payload[:2])
            if decode is None:
                return self._one_by_one(*_RAW(payload))
            args, kwargs = decode(payload)
            if not kwargs and self._fits[len(args)]:
                return args, kwargs
            return self._bound(args, self._keywords(kwargs))
        except msgspec.ValidationError as error:
            raise self._misfit(str(error)) from None
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise PayloadError(f"{self._task}: the payload is damaged: {error}") from None

    def positional(self, count: int) -> Callable[[bytes], tuple[Any, ...]] | None:
        """Reads the array of so many positional arguments; None when a call needs other ones, or keywords too.

        It raises whatever msgspec does: `decode` of the whole payload then tells what is wrong.
        """
        if count >= len(self._fits) or not self._fits[count]:
            return None
        return msgspec.msgpack.Decoder(self._arguments(count)).decode

    def _arguments(self, count: int) -> Any:
        return types.GenericAlias(tuple, tuple(p.type for p in self._positional[:count]) or ((),))

    def _decoder(self, count: int) -> _Decode:
        return msgspec.msgpack.Decoder(types.GenericAlias(tuple, (self._arguments(count), dict[str, msgspec.Raw]))).decode

    def _one_by_one(self, raw: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        known = len(self._positional)
        args: list[Any] = [self._read(p, p.name, value) for p, value in zip(self._positional, raw, strict=False)]
        if self._rest is not None:
            name = self._rest.name
            args += [self._read(self._rest, f"{name}[{i}]", value) for i, value in enumerate(raw[known:])]
        else:
            args += raw[known:]  # too many: binding says so
        return self._bound(tuple(args), self._keywords(kwargs))

    def _keywords(self, raw: dict[str, Any]) -> dict[str, Any]:
        kwargs = {}
        for name, value in raw.items():
            parameter = self._takes.get(name) or self._extra
            if parameter is None:
                raise PayloadError(f"{self._task}: got an unexpected keyword argument {name!r}", path=name)
            kwargs[name] = self._read(parameter, name, value)
        return kwargs

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            self._signature.bind(args, kwargs)
        except TypeError as error:
            raise PayloadError(f"{self._task}: {error}") from None
        return args, kwargs

    def _read(self, parameter: Parameter, label: str, raw: Any) -> Any:
        read = self._readers.get(parameter.name)
        if read is None:
            read = self._readers[parameter.name] = msgspec.msgpack.Decoder(parameter.type).decode
        try:
            return read(raw)
        except msgspec.ValidationError as error:
            raise self._misfit(str(error), label) from None

    def _misfit(self, text: str, label: str = "") -> PayloadError:
        """What msgspec says, with the parameter's name where it writes `$`, or `$[0][i]` of a whole payload."""
        reason, _, where = text.partition(" - at ")
        if label:
            where = where.replace("$", label) if where else f"`{label}`"
        else:
            where = re.sub(r"\$\[0\]\[(\d+)\]", lambda found: self._positional[int(found[1])].name, where or "`$`")
        path = where.rpartition(" in ")[2].strip("`")
        message = f"{self._task}: {where.replace('$', 'payload')}: {reason}"
        return PayloadError(message, path="" if "$" in path else path)


_RAW: _Decode = msgspec.msgpack.Decoder(tuple[tuple[msgspec.Raw, ...], dict[str, msgspec.Raw]]).decode

"""The stubs and the module offer the same names, and the same parameters."""

import ast
import inspect
import os

import comparing

comparing.skip_without_torch()

import autodist


def declared(body):
    """name -> node of a class's or module's public definitions."""
    names = {}
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            names[node.target.id] = node
        elif isinstance(node, ast.Assign):
            names[node.targets[0].id] = node
    return {name: node for name, node in names.items()
            if not name.startswith("_") or name in ("__all__", "__version__")}


def parameters_of(node):
    """(name, whether it has a default) as the stub says it, without self."""
    arguments = node.args
    plain = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    found = [(each.arg, default is not None) for each, default in zip(plain, defaults)]
    found += [(each.arg, default is not None)
              for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults)]
    return [each for each in found if each[0] not in ("self", "cls")]


def main():
    path = os.path.join(os.path.dirname(autodist.__file__), "__init__.pyi")
    with open(path, encoding="utf-8") as file:
        stub = declared(ast.parse(file.read()).body)
    assert os.path.exists(os.path.join(os.path.dirname(path), "py.typed"))
    public = set(autodist.__all__) | {"__all__"}
    assert set(stub) == public, set(stub) ^ public
    compared = 0
    for name in autodist.__all__:
        thing = getattr(autodist, name)
        node = stub[name]
        if name not in ("__version__", "ResourceSpec"):
            assert inspect.getdoc(thing), f"{name} has no docstring"
        if isinstance(node, ast.FunctionDef):
            actual = [(each.name, each.default is not each.empty)
                      for each in inspect.signature(thing).parameters.values()]
            assert parameters_of(node) == actual, (name, actual)
            compared += 1
        if isinstance(node, ast.ClassDef) and not issubclass(thing, BaseException):
            members = {each for each in dir(thing) if not each.startswith("_")}
            assert set(declared(node.body)) == members, (name, set(declared(node.body)) ^ members)
            compared += len(members)
            for member, definition in declared(node.body).items():
                function = thing.__dict__.get(member)
                if inspect.isfunction(function) and not any(
                        isinstance(each, ast.Name) and each.id == "overload"
                        for each in definition.decorator_list):
                    actual = [(each.name, each.default is not each.empty)
                              for each in inspect.signature(function).parameters.values()
                              if each.name != "self" and each.kind not in (
                                  each.VAR_POSITIONAL, each.VAR_KEYWORD)]
                    assert parameters_of(definition) == actual, (name, member, actual)
    print(f"stubs: {len(public)} names and {compared} members agree")


main()

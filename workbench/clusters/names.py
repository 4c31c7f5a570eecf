"""Names of clusters: readable ones made here ('calm-otter'), or the user's own."""

from __future__ import annotations

import random
from collections.abc import Container

from workbench.errors import BadInputError
from workbench.kept import is_name

_ADJECTIVES = (
    "able agile amber bold brave bright brisk calm candid clear clever cosy crisp eager early fair fleet fond gentle "
    "glad golden grand green happy hardy honest keen kind light lively lucid lucky mellow merry mild modest neat "
    "nimble noble patient placid plain proud quick quiet ready rosy shiny silent silver sleek smart snowy sober spry "
    "steady still sunny sure swift tidy trusty vivid warm wise witty young"
)
_ANIMALS = (
    "adder auk badger bat bear beaver bee bison bream carp cat cod colt crab crane crow curlew deer dingo dolphin dove "
    "duck eagle eel egret elk emu falcon ferret finch fox frog gannet gecko goat goose gull hare hawk heron ibex "
    "ibis jay kite koala lark lemur linnet lion llama lynx magpie marten mole moose moth newt orca osprey otter "
    "owl panda perch pike plover pony puffin quail rabbit raven robin salmon seal shrew skunk sloth snail sparrow "
    "stork swan swift tapir tern toad trout turtle viper vole walrus whale wolf wombat wren yak zebra"
)


def check_name(name: str) -> str:
    """`name` itself. Raises BadInputError when it can't be a cluster's name."""
    if not is_name(name):
        raise BadInputError(
            f"A cluster can't be called {name!r:.60}. Use a lower-case letter, then up to 39 lower-case letters, "
            "digits, hyphens or underscores, such as 'calm-otter'."
        )
    return name


def new_name(taken: Container[str] = ()) -> str:
    """A readable name that isn't in `taken`."""
    number = 1
    while True:
        for _ in range(20):
            name = f"{random.choice(_ADJECTIVES.split())}-{random.choice(_ANIMALS.split())}"
            name = name if number == 1 else f"{name}-{number}"
            if name not in taken:
                return name
        number += 1

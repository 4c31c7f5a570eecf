"""Names of clusters: readable ones made here ('calm-otter'), or the user's own."""

from __future__ import annotations

import random
from collections.abc import Container

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


def new_name(taken: Container[str] = ()) -> str:
    """Return a readable name that isn't in `taken`."""
    number = 1
    while True:
        for _ in range(20):
            name = f"{random.choice(_ADJECTIVES.split())}-{random.choice(_ANIMALS.split())}"
            name = name if number == 1 else f"{name}-{number}"
            if name not in taken:
                return name
        number += 1
